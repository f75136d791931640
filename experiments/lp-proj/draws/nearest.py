"""Which draw of Synthetic(0, 0) comes nearest to lp-proj's Table 4, over all methods together.

The ten draws of `coterie reproduce lp-proj/table-4 --protocol paper --block synthetic-00` are put
beside the paper's column, which is one draw: points of accuracy above or below it, by draw.

    python experiments/lp-proj/draws/nearest.py        # → nearest.md
"""

from pathlib import Path

import numpy as np

from coterie.runs.reproduce.base import ACCURACY, Printed
from coterie.runs.reproduce.rows import read_csv

HERE = Path(__file__).parent


def main() -> None:
    text = (HERE.parent / "table-4-paper/result.csv").read_text(encoding="utf-8")
    rows = [r for r in read_csv(text) if (r.block, r.measure) == ("synthetic-00", ACCURACY)]
    rows = [r for r in rows if r.paper]
    paper = np.array([Printed.read(r.paper).mean for r in rows])
    away = np.array([r.ours for r in rows]) - paper[:, None]
    rms = np.sqrt((away**2).mean(0))
    near = int(rms.argmin())
    draws = range(away.shape[1])
    lines = [
        "# Ten draws of Synthetic(0, 0) beside the paper's one",
        "",
        "`python experiments/lp-proj/draws/nearest.py`: points of accuracy above the paper's Table"
        f" 4, by draw. Nearest over all methods: draw {near}, at most"
        f" {np.abs(away[:, near]).max():.2f} points away.",
        "",
        "| method | paper | " + " | ".join(f"draw {i}" for i in draws) + " |",
        "|---|---|" + "---|" * len(draws),
    ]
    for row, mine in zip(rows, away, strict=True):
        lines.append(
            f"| {row.method} | {row.paper} | " + " | ".join(f"{v:+.2f}" for v in mine) + " |"
        )
    lines.append("| root mean square | | " + " | ".join(f"{v:.2f}" for v in rms) + " |")
    (HERE / "nearest.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
