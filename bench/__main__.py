"""coterie against others, in one run on one machine.

    python -m bench                      # the table, ≤ 15 minutes; writes bench/result.md
    python -m bench --row 3 --row 5      # some rows only (numbers as `--list` tells them)
    python -m bench --only ours --only stacked
    python -m bench growth               # how time grows; writes bench/growth.md and growth.svg

Every contender lives in a process of its own and plays in turn with the others: `--repeats` times
(at least 5 for numbers to quote), each of at least 0.15 s. Times are medians; a ratio is the
median over repeats of their time over ours in the same repeat, with the smallest and the largest.
PyTorch comes with `pip install -e '.[bench]'`; other frameworks need environments of their own, and
whoever is not there is named with what to install.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from bench import table
from bench.contenders import CONTENDERS, OURS
from bench.problems import ROWS
from bench.timing import Players, Row, machine, measure, say

HERE = Path(__file__).parent


def written(rows: list[Row], about: list[str], spent: float, command: str) -> str:
    """The whole result file."""
    loads = [row.load for row in rows]
    peaks = next((row.facts for row in rows if "peak" in row.facts), None)
    repeats = {len(row.entries[OURS.name].seconds) for row in rows}
    lines = [
        "# coterie against others",
        "",
        f"`{command}`, {spent / 60:.0f} minutes, medians of {max(repeats)} repeats in turn:",
        "",
        *(f"- {line}" for line in about),
        f"- load while it ran: {min(loads):.1f} to {max(loads):.1f} (1 minute, before each row;"
        " what runs here adds 1 to 2)",
    ]
    if peaks:
        lines.append(
            f"- large matrix products {peaks['peak'] / 1e9:.0f} GFLOP/s; a ← ca + b"
            f" {peaks['stream'] / 1e9:.1f} GB/s in memory, {peaks['in_cache'] / 1e9:.0f} GB/s in"
            f" caches; a small operation {1e6 * peaks['operation']:.2f} µs (by JAX,"
            f" {peaks['devices']} device(s))"
        )
    lines += [
        "",
        "## Their time over ours",
        "",
        "Bold: they are faster. In brackets: the smallest and the largest ratio of a repeat.",
        "",
        *table.ratios(rows),
        "",
        *table.left_out(rows),
        "## Their seconds of cores over ours",
        "",
        "Of all threads of a process together. Other work on the machine hardly adds to it, so it",
        "is steadier on a busy machine; it says nothing about using both cores.",
        "",
        *table.ratios(rows, cpu=True),
        "",
        "## Milliseconds a round",
        "",
        "In brackets: the number of threads, the better of 1 and 2. ≈: with this number of threads",
        "more than 3 times slower on 4 clients, so tried on those only and scaled.",
        "",
        *table.times(rows),
        "",
        "## How far ours is from what the machine can do",
        "",
        "FLOPs are those that the compiled program executes in matrix products, loops counted as",
        "often as they run (bench/hlo.py); bytes are those that it cannot avoid to move, against",
        "the bandwidth of a working set of that size (bench/bounds.py); operations are its",
        "instructions, at the cost of a very small one. The largest of the three is the bound.",
        "",
        *table.bounds(rows),
    ]
    absent = table.missing(rows)
    if absent:
        lines += ["", "## Not there", "", *absent]
    return "\n".join(lines) + "\n"


def compare(arguments: argparse.Namespace) -> None:
    names = arguments.only or [c.name for c in CONTENDERS]
    asked = [c for c in CONTENDERS if c.name in {OURS.name, *names}]
    chosen = [ROWS[i] for i in arguments.row] if arguments.row else list(ROWS)
    about, begun = machine(), time.perf_counter()
    rows: list[Row] = []
    command = " ".join(["python -m bench", *sys.argv[1:]])
    whole = not (arguments.row or arguments.only)
    out = arguments.out or (HERE / "result.md" if whole else None)
    players = Players()
    try:
        for problem in chosen:
            spent = f"{time.perf_counter() - begun:.0f} s"
            say(f"{problem.name} (load {os.getloadavg()[0]:.1f}, after {spent})")
            rows.append(measure(players, problem, asked, arguments.repeats))
            text = written(rows, about, time.perf_counter() - begun, command)
            if out is not None:
                Path(out).write_text(text, encoding="utf-8")
    finally:
        players.close()
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("table", "growth"), default="table")
    parser.add_argument("--row", type=int, action="append", choices=range(len(ROWS)))
    parser.add_argument("--only", action="append", choices=[c.name for c in CONTENDERS])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", help="where to write; nothing: bench/, if all rows ran")
    parser.add_argument("--list", action="store_true", help="the rows and their numbers")
    arguments = parser.parse_args()
    if arguments.list:
        for i, problem in enumerate(ROWS):
            print(i, problem.name)
    elif arguments.what == "growth":
        from bench.growth import growth

        growth(arguments.repeats, HERE)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
