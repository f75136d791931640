"""Shared by experiments on what more rounds bring: accuracy at some rounds, run by run.

Every run is written to runs.csv as soon as it has ended, so that an experiment which was stopped
goes on with the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

Found = dict[tuple[str, int, int], float]
"""The accuracy in per cent, by name, seed and rounds."""
HEAD = ("method", "seed", "rounds", "accuracy")


def read(folder: Path) -> Found:
    path = folder / "runs.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as f:
        return {
            (r["method"], int(r["seed"]), int(r["rounds"])): float(r["accuracy"])
            for r in csv.DictReader(f)
        }


def write(folder: Path, found: Found, lines: Sequence[str]) -> None:
    """runs.csv and result.md."""
    with (folder / "runs.csv").open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(HEAD)
        out.writerows([*key, f"{value:.4f}"] for key, value in found.items())
    (folder / "result.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cells(found: Found, name: str, at: Sequence[int]) -> list[str]:
    """Mean over seeds, ± their deviation where there are several; nothing where nothing was run."""
    made = []
    for rounds in at:
        values = [v for (n, _, t), v in found.items() if (n, t) == (name, rounds)]
        wide = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
        made.append(f"{np.mean(values):.2f}{wide}" if values else "")
    return made


def go_on(
    folder: Path,
    seeds: Mapping[str, int],
    scores: Callable[[str, int], Found],
    told: Callable[[Found], Sequence[str]],
) -> None:
    """Make the runs that are missing: so many seeds of each name."""
    found = read(folder)
    for name, count in seeds.items():
        for seed in range(count):
            if not any(key[:2] == (name, seed) for key in found):
                made = scores(name, seed)
                found |= made
                write(folder, found, told(found))
                print(name, seed, list(made.values()), flush=True)
    write(folder, found, told(found))
