"""Carry out tables and figures of papers: tune what a paper leaves open, run, and give what comes
out.

Everything goes through the folders of `coterie tune` and of single runs, so the command can be
killed at any moment and repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.errors import CoterieError, InvalidInput
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Begin, Board, Planned, run_all
from coterie.runs.reproduce.base import Block, PaperTable
from coterie.runs.reproduce.measures import Ran, ran
from coterie.runs.reproduce.plan import BlockPlan, Found, PlannedStudy, plan_block, study_of
from coterie.runs.reproduce.tuned import Values, record, recorded, values_of
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
    tuned: Path | None = None
    """Where values that were tuned are kept."""
    again: bool = False
    """Whether to tune anew what was tuned before."""


class Done(NamedTuple):
    """A block that was carried out."""

    plan: BlockPlan
    lines: list[Ran]
    """What came of every line."""
    tuning: float | None = 0.0
    """Seconds of processors that its tuning took; None: they were not counted."""

    @property
    def block(self) -> Block:
        return self.plan.block


def carry_out(tables: Sequence[PaperTable], wish: Wish) -> Iterator[tuple[PaperTable, list[Done]]]:
    """Table by table, as they are done. First everything that is to be tuned, then all runs; one
    bar counts both.
    """
    chosen = _chosen(tables, wish)
    if not chosen:
        raise InvalidInput(
            f"the data of {', '.join(table.key for table in tables)} are not there, so nothing can"
            " be done; `coterie reproduce list` names what stands on other data."
        )
    studies = [None if wish.quick else study_of(block, wish.work) for _, block in chosen]
    waiting = {s.folder: s for s in studies if s is not None}
    plans = [_plan(table, block, {}, wish) for table, block in chosen]
    total = sum(s.methods for s in waiting.values()) + len(
        {p.folder for x in plans for p in x.runs}
    )
    board, before = _Whole.of(wish.begin, total), 0
    found: dict[Path, Values] = {}
    for study in waiting.values():
        found[study.folder] = _tune(study, wish, board.after(before) if board else None)
        before += study.methods
    known = [found[s.folder] if s is not None else Values({}, 0.0) for s in studies]
    if waiting:
        plans = [_plan(*c, values, wish) for c, (values, _) in zip(chosen, known, strict=True)]
    seen: set[Path] = set()
    for table in tables:
        mine = [i for i, (of, _) in enumerate(chosen) if of is table]
        todo = _once([p for i in mine for p in plans[i].runs])
        shared = len({p.folder for p in todo} & seen)
        outcomes = run_all(
            todo,
            jobs=wish.jobs,
            cluster=wish.cluster,
            keep_models=False,
            begin=_among(board, wish.begin, before - shared, total),
            say=wish.say,
        )
        before += len(todo) - shared
        seen |= {p.folder for p in todo}
        by_folder = {p.folder: o for p, o in zip(todo, outcomes, strict=True)}
        yield table, [Done(plans[i], ran(plans[i], by_folder), known[i][1]) for i in mine]


def _plan(table: PaperTable, block: Block, found: Found, wish: Wish) -> BlockPlan:
    seeds = wish.seeds or block.seeds or table.seeds
    return plan_block(table, block, wish.work, seeds, found, quick=wish.quick)


def _once(plan: list[Planned]) -> list[Planned]:
    """Several lines, and several tables, may look at the same run."""
    return list({p.folder: p for p in plan}.values())


def _chosen(tables: Sequence[PaperTable], wish: Wish) -> list[tuple[PaperTable, Block]]:
    """The blocks that are asked for, and whose data are there. Data that are not there are told of
    once.
    """
    for name in wish.blocks:
        for table in tables:
            known = [block.name for block in table.blocks]
            if name not in known:
                raise InvalidInput(
                    f"--block is {name!r}, but {table.key} has the blocks {', '.join(known)}."
                )
    found, without = [], dict[str, list[str]]()
    tried: dict[str, str | None] = {}
    for table in tables:
        for block in table.blocks:
            if wish.blocks and block.name not in wish.blocks:
                continue
            data = str(block.experiment["data"])
            if data not in tried:
                tried[data] = _missing(block)
            if (error := tried[data]) is not None:
                without.setdefault(error, []).append(f"{table.key} {block.name}")
            else:
                found.append((table, block))
    for error, names in without.items():
        wish.say(f"left out: {', '.join(names)}: {error}")
    return found


def _missing(block: Block) -> str | None:
    """Why a block's data cannot be had; None: they are there."""
    try:
        Experiment.from_config(block.settings(1)).federation()
    except CoterieError as error:
        return str(error)
    return None


def _tune(study: PlannedStudy, wish: Wish, board: Board | None) -> Values:
    """Values that were found before, unless they are to be found again; or tuning."""
    if wish.tuned is not None and not wish.again:
        before = recorded(wish.tuned, study)
        if before is not None:
            return before
    found = tune_into(
        study.experiment,
        study.folder,
        jobs=wish.jobs,
        cluster=wish.cluster,
        board=board,
        say=wish.say,
    )
    if wish.tuned is not None:
        record(wish.tuned, study, found)
    return values_of(found)


def _among(board: _Whole | None, begin: Begin | None, before: int, total: int) -> Begin | None:
    """One bar over everything."""
    if board is not None:
        return board.after(before)
    if begin is None:
        return None
    return lambda label, number, _: begin(label, before + number, total)


class _Whole:
    """A board that counts the parts of a command among all that there is to do."""

    def __init__(self, board: Any, before: int, total: int) -> None:
        self.board, self.before, self.total = board, before, total

    @classmethod
    def of(cls, begin: Begin | None, total: int) -> _Whole | None:
        return cls(begin, 0, total) if isinstance(begin, Board) else None

    def after(self, before: int) -> _Whole:
        return _Whole(self.board, before, self.total)

    def __call__(self, label: str, number: int, total: int) -> Any:
        return self.board(label, self.before + number, self.total)

    def overall(self, ended: int, total: int) -> None:
        self.board.overall(self.before + ended, self.total)

    def show(
        self, slot: int, label: str, rounds: int | None, total: int | None, note: str | None
    ) -> None:
        self.board.show(slot, label, rounds, total, note)
