"""Does the answer tell the truth? On made-up tables of which the right answer is known
(`worlds.py`), on pure noise, and on real tables, before and after tuning.

python experiments/answer/truth.py worlds runs/answer   # every world: worlds.csv, worlds.md
python experiments/answer/truth.py real runs/answer     # HAR, Vehicle, scikit-learn: real.csv, .md
python experiments/answer/truth.py noise --draws 100    # noise.csv, noise.md

Everything that is finished is kept: the commands can be killed and repeated. `worlds` and `real`
call `coterie compare` as a user would, with --minutes 0 ("before") and --minutes 2 ("after").
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tables import TABLES
from worlds import WORLDS, pure_noise, write

HERE = Path(__file__).parent
COLUMNS = ("table", "settings", "answer", "method", "gain", "low", "high", "p", "clients", "text")
SITES = (3, 10, 30)


def compared(table: Path, name: str, minutes: str, out: Path) -> dict[str, Any]:
    """The answer of `coterie compare`, made now or before."""
    folder = out / f"{name}-{minutes}"
    if not (folder / "answer.json").is_file():
        command = ["compare", str(table), "--client", "site", "--target", "y"]
        more = ["--minutes", minutes, "-o", str(folder), "--drop-models"]
        subprocess.run([sys.executable, "-m", "coterie", *command, *more], check=True)
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return found


def told(name: str, minutes: str, found: dict[str, Any]) -> dict[str, Any]:
    settings = "default" if minutes == "0" else "tuned"
    return {"table": name, "settings": settings, **{k: found[k] for k in COLUMNS[2:]}}


def report(rows: list[dict[str, Any]], truths: dict[str, str], stem: str) -> None:
    with (HERE / f"{stem}.csv").open("w", newline="") as f:
        table = csv.DictWriter(f, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    lines = ["| table | truth | settings | answer | method | gain (95% interval) |"]
    lines.append("|---|---|---|---|---|---|")
    for r in rows:
        interval = "" if r["low"] is None else f" ({r['low']:+.4f} to {r['high']:+.4f})"
        gain = "" if r["gain"] is None else f"{r['gain']:+.4f}{interval}"
        shown = [r["table"], truths[r["table"]], r["settings"], r["answer"], r["method"], gain]
        lines.append("| " + " | ".join(str(s) for s in shown) + " |")
    sentences = [f"**{r['table']}, {r['settings']}.** {r['text']}\n" for r in rows]
    (HERE / f"{stem}.md").write_text("\n".join([*lines, "", *sentences]))


def worlds(out: Path) -> None:
    rows = []
    for name, world in WORLDS.items():
        table = out / f"{name}.csv"
        if not table.is_file():
            write(world.make(np.random.default_rng(0)), table)
        for minutes in ("0", "2"):
            found = compared(table, name, minutes, out)
            if minutes == "2" and found["answer"] not in world.right:
                print(f"WRONG: {name} is answered {found['answer']!r}, right is {world.right}")
            rows.append(told(name, minutes, found))
            report(rows, {n: w.truth for n, w in WORLDS.items()}, "worlds")


def real(out: Path) -> None:
    rows = []
    for name, (make, what) in TABLES.items():
        table = out / f"{name}.csv"
        if not table.is_file():
            write(make(), table)
        for minutes in ("0", "2"):
            rows.append(told(name, minutes, compared(table, name, minutes, out)))
            report(rows, {n: w for n, (_, w) in TABLES.items()}, "real")
        del what


def draws(count: int) -> Iterator[tuple[int, int]]:
    for draw in range(count):
        for sites in SITES:
            yield sites, draw


def noise(count: int) -> None:
    """What is said of coins: in memory, tuned for a few seconds each."""
    import coterie

    file = HERE / "noise.csv"
    rows = list(csv.DictReader(file.open())) if file.is_file() else []
    done = {(int(r["sites"]), int(r["draw"])) for r in rows}
    for sites, draw in draws(count):
        if (sites, draw) in done:
            continue
        made = pure_noise(np.random.default_rng([draw, sites]), sites)
        fed = coterie.from_table(made, client="site", target="y", seed=draw)
        found = coterie.answer(fed, minutes=0.01, rounds=20).answer()
        verdict = "" if found.verdict is None else found.verdict.word
        rows.append(
            {"sites": sites, "draw": draw, "answer": found.word, "test": verdict}
            | {"method": found.method, "gain": found.gain.mean if found.gain else ""}
        )
        with file.open("w", newline="") as f:
            table = csv.DictWriter(f, tuple(rows[0]))
            table.writeheader()
            table.writerows(rows)
        summary(rows)


def summary(rows: list[dict[str, Any]]) -> None:
    lines = ["Labels by a coin, 60 rows a site: nothing can be learnt, so nothing may be clear.\n"]
    lines += ["| sites | federations | helps | hurts | no clear difference | wrong |"]
    lines += ["|---|---|---|---|---|---|"]
    for sites in SITES:
        mine = Counter(r["test"] for r in rows if int(r["sites"]) == sites)
        total = mine.total()
        if not total:
            continue
        wrong = mine["helps"] + mine["hurts"]
        counts = f"{mine['helps']} | {mine['hurts']} | {mine['no clear difference']}"
        lines.append(f"| {sites} | {total} | {counts} | {100 * wrong / total:.1f}% |")
    (HERE / "noise.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "noise":
        noise(int(rest[1]) if rest else 100)
    else:
        {"worlds": worlds, "real": real}[what](Path(rest[0]) if rest else Path("runs/answer"))
