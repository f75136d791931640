"""What tables take: measured by runs that were made, or foretold from quick ones.

costs.csv lies beside the results and has a line for every block: seconds of all its runs and of its
tuning. They are seconds of processors, which do not depend on what else runs on the machine; where
the basis is "run", of an earlier version, seconds on the clock. A quick run foretells them: its
rounds are fewer by a known factor. Tables share runs, so sums over tables are too large.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from coterie.core.files import write_text
from coterie.report.outcome import Outcome
from coterie.report.units import seconds_text
from coterie.runs.reproduce.base import FOLDS, Block, PaperTable
from coterie.runs.reproduce.carry_out import Done

FILE = "costs.csv"
GRID = 27
"""Half of the largest grid: what a grid that is searched as a whole is taken for."""
HEAD = ("table", "protocol", "block", "seeds", "seconds", "basis")


class Cost(NamedTuple):
    """Of a block."""

    seeds: int
    seconds: float
    basis: str
    """"cores": measured; "run": measured on the clock, by an earlier version; "quick": foretold."""


Costs = dict[tuple[str, str, str], Cost]
"""By table, protocol and block."""


def read_costs(out: Path) -> Costs:
    path = out / FILE
    if not path.is_file():
        return {}
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    return {
        (r["table"], r["protocol"], r["block"]): Cost(
            int(r["seeds"]), float(r["seconds"]), r["basis"]
        )
        for r in rows
    }


def note_costs(out: Path, table: PaperTable, done: Sequence[Done], *, quick: bool) -> None:
    """Write down what the blocks took; what was foretold gives way to what was measured."""
    costs = read_costs(out)
    for each in done:
        key = (table.key, table.protocol, each.block.name)
        if quick and key in costs and costs[key].basis != "quick":
            continue
        if (cost := foretold(table, each) if quick else spent(each)) is not None:
            costs[key] = cost
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for names, cost in sorted(costs.items()):
        writer.writerow((*names, cost.seeds, f"{cost.seconds:.0f}", cost.basis))
    write_text(out / FILE, text.getvalue())


def _runs(each: Done) -> dict[Path, Outcome]:
    """Every run once, by its folder."""
    found: dict[Path, Outcome] = {}
    for cell, run in zip(each.plan.cells, each.lines, strict=True):
        found |= {p.folder: o for p, o in zip(cell.runs, run.outcomes, strict=True)}
        found |= {p.folder: o for p, o in zip(cell.local, run.local, strict=True)}
    return found


def spent(each: Done) -> Cost | None:
    """None where a part was made by a version that did not count seconds of processors."""
    parts = [each.tuning, *(o.core_seconds for o in _runs(each).values())]
    counted = [part for part in parts if part is not None]
    if len(counted) < len(parts):
        return None
    return Cost(len(each.plan.experiment.seeds), sum(counted), "cores")


class Pace(NamedTuple):
    """What a run takes: to compile, for an evaluation of all clients, for a round."""

    compiling: float
    evaluation: float
    round: float

    @classmethod
    def of(cls, folder: Path) -> Pace:
        """From the times of its evaluations: the first, before any round, is one evaluation."""
        found = pq.read_table(folder / "timing.parquet").to_pydict()
        rounds, compiled = np.array(found["round"]), np.array(found["compile_seconds"])
        steady = np.maximum(0.0, np.array(found["seconds"]) - compiled)
        first, later = float(steady[0]), float(steady[-1] - steady[0])
        each = max(0.0, later - first * (len(rounds) - 1)) / max(1, int(rounds[-1]))
        return cls(float(compiled[-1]), first, each)

    def over(self, rounds: int, evaluations: int) -> float:
        return self.evaluation * evaluations + self.round * rounds


def foretold(table: PaperTable, each: Done) -> Cost:
    """From a quick run: rounds and evaluations take as long as they did; tuning takes for every
    method what its budget of steps would take the slowest.
    """
    training = each.block.experiment["training"]
    rounds = int(training["rounds"])
    evaluations = 1 + -(-rounds // int(training["eval_every"]))
    paces = [Pace.of(folder) for folder in _runs(each)]
    seeds = each.block.seeds or table.seeds
    runs = sum(seeds * p.over(rounds, evaluations) + p.compiling for p in paces)
    slowest = max((p.round * rounds for p in paces), default=0.0)
    folds = FOLDS if each.block.preset is None else 1
    trials = folds * (each.block.trials or GRID) / each.block.shorter
    tuning = len(each.block.tuned_methods()) * trials * slowest
    return Cost(seeds, runs + tuning, "quick")


def told(table: PaperTable, costs: Costs) -> str:
    """What a table takes, in words; long blocks do not count."""
    short = [block for block in table.blocks if not block.long]
    found = [cost for block in short if (cost := _cost(table, block, costs))]
    if not found:
        return "not measured"
    text = seconds_text(sum(cost.seconds for cost in found))
    if any(cost.basis == "quick" for cost in found):
        text = f"about {text}"
    missing = len(short) - len(found)
    return text if not missing else f"{text}, and {missing} of {len(short)} blocks not measured"


def told_of_all(tables: Sequence[PaperTable], costs: Costs) -> str:
    """What `coterie reproduce all` takes at the most, in a sentence: what tables share is counted
    in each of them.
    """
    short = [(table, block) for table in tables for block in table.blocks if not block.long]
    found = [cost for table, block in short if (cost := _cost(table, block, costs))]
    if not found:
        return "`all`: not measured"
    text = f"`all`: at most {seconds_text(sum(cost.seconds for cost in found))} of one core"
    if any(cost.basis == "quick" for cost in found):
        text = f"{text}, in part foretold"
    missing = len(short) - len(found)
    left = "" if not missing else f", and {missing} of {len(short)} blocks not measured"
    return f"{text}{left}; runs that tables share are counted in each."


def _cost(table: PaperTable, block: Block, costs: Costs) -> Cost | None:
    return costs.get((table.key, table.protocol, block.name))
