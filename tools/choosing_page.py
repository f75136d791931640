"""Write the table and the figure of docs/choosing.md from the results in experiments/graph; a test
checks that they are up to date.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs/choosing.md", ROOT / "docs/images/choosing.svg"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LOOKS = "every=12, sketch=256, bits=1"

# Federation: the folder of most rows, and of the row with eight looks.
FEDERATIONS = {
    "MNIST, hidden clusters with other names for labels": (
        "mnist-permuted",
        "again-mnist-permuted",
    ),
    "MNIST, hidden clusters of turned pictures": ("mnist-rotated", "again-mnist-rotated"),
    "MNIST, two labels each": ("mnist", "later-mnist"),
    "HAR, a person each": ("har", "har"),
    "HAR, hidden clusters with other names": ("har-permuted", "again-har-permuted"),
    "Synthetic, two hidden rules": ("synthetic", "again-synthetic"),
    "CIFAR-10 (part), three labels each": ("cifar10", "cifar10"),
}
COLOURS = {"FedAvg": "#b35806", "Ditto": "#8073ac", "FedU, all pairs": "#35978f"}
COLOURS["FedU, learnt graph"] = "#01665e"
Gain = tuple[float, float, float]


def rows(folder: str) -> dict[str, dict[str, str]]:
    """The first table of a result: label → column → text."""
    found: dict[str, dict[str, str]] = {}
    with (ROOT / "experiments/graph" / folder / "result.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["table"] == "1":
                found.setdefault(line["label"], {})[line["column"]] = line["text"]
    return found


def row(folder: str, pattern: str) -> dict[str, str]:
    (found,) = [cells for label, cells in rows(folder).items() if re.fullmatch(pattern, label)]
    return found


def measured(federation: str) -> dict[str, dict[str, str]]:
    """What is compared: name → cells."""
    base, again = FEDERATIONS[federation]
    learnt = (
        r"FedU over learn: kin"
        if again == "later-mnist"
        else rf"FedU.* over learn: kin \({LOOKS}\)"
    )
    return {
        "Local": row(base, r"Local .*"),
        "FedAvg": row(base, "FedAvg"),
        "Ditto": row(base, "Ditto"),
        "FedU, all pairs": row(base, r"FedU .*over complete"),
        "FedU, learnt graph": row(again, learnt),
    }


def gain(text: str) -> Gain:
    """The gain over Local and its interval, from "+1.02 (+0.09 to +1.96)"."""
    middle, low, high = (float(x) for x in re.findall(r"[+-][0-9.]+", text))
    return middle, low, high


def table() -> str:
    names = ["Local", *COLOURS]
    lines = [f"| all / data-poor clients | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for federation in FEDERATIONS:
        cells = []
        for name, values in measured(federation).items():
            mean = lambda column, v=values: v[column].split(" ±")[0]
            text = f"{mean('all')} / {mean('data-poor')}"
            better = name != "Local" and gain(values["gain over Local"])[1] > 0
            cells.append(f"**{text}**" if better else text)
        lines.append(f"| {federation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure() -> str:
    """Gains over Local with their intervals, as SVG."""
    left, width, top, step, gap = 330, 560, 52, 11, 11
    low, high = -48.0, 30.0
    x = lambda points: left + (points - low) / (high - low) * width
    height = top + len(FEDERATIONS) * (len(COLOURS) * step + gap) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {height}"'
        ' font-family="sans-serif" font-size="12">',
        "<title>Gain over training alone, by federation and method</title>",
        f'<rect width="{left + width + 20}" height="{height}" fill="#ffffff"/>',
    ]
    for i, (name, colour) in enumerate(COLOURS.items()):
        at = left + i * 140
        out.append(f'<circle cx="{at}" cy="20" r="5" fill="{colour}"/>')
        out.append(f'<text x="{at + 10}" y="24" fill="#222222">{name}</text>')
    for points in range(-40, 31, 10):
        colour = "#333333" if points == 0 else "#dddddd"
        out.append(f'<path d="M{x(points):.1f} {top - 14}V{height - 30}" stroke="{colour}"/>')
        label = f"{points:+d}" if points else "Local"
        out.append(
            f'<text x="{x(points):.1f}" y="{height - 14}" text-anchor="middle" fill="#444444">'
            f"{label}</text>"
        )
    y = float(top)
    for federation in FEDERATIONS:
        found = measured(federation)
        middle = y + (len(COLOURS) - 1) * step / 2 + 4
        out.append(
            f'<text x="{left - 12}" y="{middle:.1f}" text-anchor="end" fill="#222222">'
            f"{federation}</text>"
        )
        for name, colour in COLOURS.items():
            mean, first, last = gain(found[name]["gain over Local"])
            out.append(
                f'<path d="M{x(first):.1f} {y}H{x(last):.1f}" stroke="{colour}" stroke-width="2"/>'
                f'<circle cx="{x(mean):.1f}" cy="{y}" r="4" fill="{colour}"/>'
            )
            y += step
        y += gap
    return "\n".join([*out, "</svg>"]) + "\n"


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    FIGURE.write_text(figure(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print("choosing.md and its figure written")
