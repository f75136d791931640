"""Carry out tables of papers: tune what a paper leaves open, run, and write what comes out.

Everything goes through the folders of `coterie tune` and `coterie compare`, so the command can be
killed at any moment and repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import make_folder, write_text
from coterie.engine.exchange import exchange_of
from coterie.methods.local import Local, equal_compute
from coterie.report.comparison import Comparison
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.compare import Paired, pair
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Begin, Board, run_all
from coterie.runs.reproduce.base import Block, PaperTable
from coterie.runs.tuning.folder import tune_into


@dataclasses.dataclass(frozen=True)
class Wish:
    """How tables are carried out."""

    work: Path
    """Where runs go."""
    seeds: int | None = None
    quick: bool = False
    jobs: int = 1
    begin: Begin | None = None
    say: runs.Say = print
    blocks: tuple[str, ...] = ()
    """Names of blocks; none: all."""
    cluster: Scheduler | None = None
    """Where runs and tuning go instead of `jobs` processes."""


class Done(NamedTuple):
    """A block that was carried out."""

    block: Block
    comparison: Comparison
    places: list[int]
    """Which entry of the comparison each line looks at."""
    experiment: Experiment


def carry_out(tables: Sequence[PaperTable], wish: Wish) -> Iterator[tuple[PaperTable, list[Done]]]:
    """Table by table, as they are done. First everything that is to be tuned, then all runs."""
    plans = [
        (table, [_planned(table, block, wish) for block in _blocks(table, wish)])
        for table in tables
    ]
    if not any(each for _, each in plans):
        raise InvalidInput(
            f"the data of {', '.join(table.key for table in tables)} are not there, so nothing can"
            " be done; `coterie reproduce list` names what stands on other data."
        )
    total = sum(len(paired.plan) for _, each in plans for _, paired, _ in each)
    before = 0
    for table, each in plans:
        done = []
        for block, paired, places in each:
            outcomes = run_all(
                paired.plan,
                jobs=wish.jobs,
                cluster=wish.cluster,
                keep_models=False,
                begin=_among(wish.begin, before, total),
                say=wish.say,
            )
            before += len(paired.plan)
            done.append(Done(block, paired.compared(outcomes), places, paired.experiment))
        yield table, done


def _blocks(table: PaperTable, wish: Wish) -> list[Block]:
    """The blocks that are asked for, and whose data are there."""
    known = [block.name for block in table.blocks]
    for name in wish.blocks:
        if name not in known:
            raise InvalidInput(
                f"--block is {name!r}, but {table.key} has the blocks {', '.join(known)}."
            )
    found = []
    for block in table.blocks:
        if wish.blocks and block.name not in wish.blocks:
            continue
        try:
            Experiment.from_config(block.settings(1)).federation()
        except CoterieError as error:
            wish.say(f"{table.key}, {block.name} is left out: {error}")
            continue
        found.append(block)
    return found


def _planned(table: PaperTable, block: Block, wish: Wish) -> tuple[Block, Paired, list[int]]:
    """The runs of a block, with the values that were found for what is tuned."""
    seeds = wish.seeds or table.seeds
    folder = wish.work / f"{table.paper}-{table.name}" / block.name
    found = {} if wish.quick else _tuned(block, folder, seeds, wish)
    methods = [found.get(_key(m), Contender.from_config(m)) for m in block.methods()]
    alone = next((c.method for c in methods if isinstance(c.method, Local)), None)
    listed = [*methods, *_locals(methods, alone)]
    config = block.settings(seeds, quick=wish.quick)
    made = Experiment.from_config(config).with_(contenders=tuple(listed))
    paired = pair(made, folder, alone)
    make_folder(folder, force=True)
    write_text(folder / "config.toml", made.to_toml())
    configs = [c.to_config() for _, c in paired.labelled]
    everybody = made.training.cohort_size(made.federation()) == made.federation().clients
    places = []
    for line in block.lines:
        chosen = methods[block.methods().index(line.method)]
        if isinstance(chosen.method, Local) and everybody:
            chosen = Contender(chosen.method.replace(trains="sampled"))
        places.append(configs.index(chosen.to_config()))
    return block, paired, places


def _key(method: Any) -> str:
    return str(sorted(Contender.from_config(method).to_config().items()))


def _tuned(block: Block, folder: Path, seeds: int, wish: Wish) -> dict[str, Contender]:
    experiment = block.tuning(seeds)
    if experiment is None:
        return {}
    board = wish.begin if isinstance(wish.begin, Board) else None
    place = folder.parent / f"{block.name}-tune"
    found = tune_into(
        experiment, place, jobs=wish.jobs, cluster=wish.cluster, board=board, say=wish.say
    )
    return {str(sorted(t.given.to_config().items())): t.contender for t in found}


def _locals(methods: list[Contender], alone: Any) -> list[Contender]:
    """Local with every other amount of work, and the step size that was found for Local."""
    found: list[Contender] = []
    if alone is None:
        return found
    for c in methods:
        if isinstance(c.method, Local) or exchange_of(c.method).pooled:
            continue
        equal = equal_compute(c.method).replace(lr=alone.lr, l2=alone.l2)
        made = Contender(equal)
        if equal != alone and made not in found:
            found.append(made)
    return found


def _among(begin: Begin | None, before: int, total: int) -> Begin | None:
    """One bar over all runs of all tables."""
    if begin is None:
        return None
    if isinstance(begin, Board):
        return Whole(begin, before, total)
    return lambda label, number, _: begin(label, before + number, total)


class Whole:
    """A board that counts the runs of this block among all."""

    def __init__(self, board: Any, before: int, total: int) -> None:
        self.board, self.before, self.total = board, before, total

    def __call__(self, label: str, number: int, total: int) -> Any:
        return self.board(label, self.before + number, self.total)

    def overall(self, ended: int, total: int) -> None:
        self.board.overall(self.before + ended, self.total)

    def show(
        self, slot: int, label: str, rounds: int | None, total: int | None, note: str | None
    ) -> None:
        self.board.show(slot, label, rounds, total, note)
