"""Programs of runs that come next are compiled while others run.

A first comparison spends most of its time in the compiler. Runs of one family share their programs;
the first round of a run that is thrown away compiles them, in a thread of its own, and the compiler
leaves Python to others while it works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from coterie.core.errors import CoterieError
from coterie.engine.in_turn import compiling_first
from coterie.engine.mesh import cores
from coterie.engine.row_scores import row_scores

if TYPE_CHECKING:
    from coterie.runs.grid import Planned

ROOM = 1 << 28
"""Bytes of data and models above which nothing is compiled ahead: it would be there twice."""


class Warming:
    """Compiles ahead for the families of a plan that have something to do."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        self.pool: ThreadPoolExecutor | None = None
        self.ahead: dict[str, Future[None]] = {}
        first: dict[str, Planned] = {}
        for planned in plan:
            first.setdefault(planned.family, planned)
        if len(first) < 2 or not all(_small(planned) for planned in first.values()):
            return
        self.pool = ThreadPoolExecutor(max(2, cores()), "coterie-compiles")
        for family, planned in first.items():
            self.ahead[family] = self.pool.submit(_compile, planned)

    def wait_for(self, planned: Planned) -> None:
        """Until the programs of a run are there."""
        if (found := self.ahead.get(planned.family)) is not None:
            found.result()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)


def _small(planned: Planned) -> bool:
    experiment = planned.single
    if experiment.training.store != "device":
        return False
    fed = experiment.federation()
    model = experiment.model.build(fed.input_shape, fed.shape.outputs).parameters()
    return fed.train.x.nbytes + 4 * model * fed.clients < ROOM


def _compile(planned: Planned) -> None:
    """An evaluation, a round and the scores of all rows. What goes wrong here goes wrong in the run
    too, which says so.
    """
    from coterie.runs.run import simulator_of

    with contextlib.suppress(CoterieError), compiling_first():
        simulator = simulator_of(planned.single, None)
        simulator.evaluate()
        simulator.advance(1)
        row_scores(simulator)
