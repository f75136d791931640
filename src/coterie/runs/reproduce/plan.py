"""From a block to its runs.

A run lies in a folder that is named after its experiment, so that tables and figures which need the
same run share it; so do tunings.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from coterie.adversary import get_attack
from coterie.engine.exchange import exchange_of
from coterie.methods.local import Local, equal_compute
from coterie.runs.contender import Contender, named
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Planned
from coterie.runs.reproduce.base import Block, Config, Line, PaperTable

Found = dict[str, Contender]
"""What tuning found, by the method that was given."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A line's method, its runs (one for every seed), and those of Local beside it."""

    contender: Contender
    runs: list[Planned]
    local: list[Planned] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class BlockPlan:
    """A block with a cell for every line."""

    table: PaperTable
    block: Block
    experiment: Experiment
    """With all methods, as it is written into the result."""
    cells: list[Cell]

    @property
    def runs(self) -> list[Planned]:
        return [p for cell in self.cells for p in (*cell.runs, *cell.local)]


@dataclasses.dataclass(frozen=True)
class PlannedStudy:
    """A block's tuning and its folder."""

    experiment: Experiment
    folder: Path

    @property
    def methods(self) -> int:
        """Those that are tuned; Local always is."""
        there = any(isinstance(m, Local) for m in self.experiment.methods)
        return len(self.experiment.contenders) + (not there)


def study_of(block: Block, work: Path) -> PlannedStudy | None:
    experiment = block.tuning()
    if experiment is None:
        return None
    name = hashlib.sha256(experiment.to_toml().encode()).hexdigest()[:12]
    return PlannedStudy(experiment, work / "tuning" / f"{experiment.data.name}-{name}")


def plan_block(
    table: PaperTable, block: Block, work: Path, seeds: int, found: Found, *, quick: bool = False
) -> BlockPlan:
    """The runs of a block, with the values that were found for what is tuned."""
    made = Experiment.from_config(block.settings(seeds, quick=quick))
    federation = made.federation()
    everybody = made.training.cohort_size(federation) == federation.clients
    methods = [found.get(key_of(m)) or Contender.from_config(m) for m in block.methods()]
    alone = next((c.method for c in methods if type(c.method) is Local), None)

    def runs_of(contender: Contender, line: Line, attack: Config | None) -> list[Planned]:
        training = made.training.replace(**line.training)
        label = line.name if attack is not None or not line.attack else line.label
        return [
            _planned(made.with_(training=training), contender, seed, label, attack, work)
            for seed in made.seeds
        ]

    cells, listed = [], []
    for line in block.lines:
        chosen = methods[block.methods().index(line.method)]
        chosen = _plain(chosen._replace(method=chosen.method.replace(**line.changes)), everybody)
        beside = _beside(chosen, alone, everybody) if block.alone else None
        label = f"Local, as {line.label}"
        cell = Cell(
            chosen,
            runs_of(chosen, line, line.attack),
            [] if beside is None else runs_of(beside, dataclasses.replace(line, label=label), None),
        )
        cells.append(cell)
        listed += [c for c in (chosen, beside) if c is not None and c not in listed]
    return BlockPlan(table, block, made.with_(contenders=tuple(listed)), cells)


def key_of(method: Any) -> str:
    """A method as it was given to tuning."""
    given = method if isinstance(method, Contender) else Contender.from_config(method)
    return str(sorted(given.to_config().items()))


def _planned(
    made: Experiment,
    contender: Contender,
    seed: int,
    label: str,
    attack: Config | None,
    work: Path,
) -> Planned:
    single = made.single(contender, seed).with_(name="reproduce")
    family = label
    if attack is not None:
        lie = get_attack(*named("attack", attack))
        single, family = single.with_(attack=lie), f"{label}, {lie.name}"
    folder = f"{contender.method.name}-{single.fingerprint()[:12]}"
    return Planned(label, family, single, work / "runs" / made.data.name / folder)


def _plain(contender: Contender, everybody: bool) -> Contender:
    """Where everybody is in every round it does not matter who trains."""
    if isinstance(contender.method, Local) and everybody:
        return contender._replace(method=contender.method.replace(trains="sampled"))
    return contender


def _beside(contender: Contender, alone: Local | None, everybody: bool) -> Contender | None:
    """Local with the work of a method, and the step size that was found for Local."""
    if alone is None or exchange_of(contender.method).pooled:
        return None
    if isinstance(contender.method, Local):
        return contender
    equal = equal_compute(contender.method)
    if equal.optimizer is None:
        equal = equal.replace(lr=alone.lr)
    return _plain(Contender(equal.replace(l2=alone.l2)), everybody)
