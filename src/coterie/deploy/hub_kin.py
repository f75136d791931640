"""What the hub of a real federation knows of its clients' likeness, where the graph is learnt.

Before a round in which that is due, the hub asks all clients that have trained since for a sketch,
and makes the graph as the simulator does (engine/kinship.py). Asking for sketches is a stage of its
own: the hub makes requests, takes replies and closes it as it does with a round.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.channel.link import flat
from coterie.core.typing import PyTree
from coterie.coupling.graph import Graph, from_arrays
from coterie.coupling.learnt import Evidence, GraphRule, gossip
from coterie.coupling.learnt.base import NAME, empty
from coterie.deploy.plan_graph import looks
from coterie.deploy.setup import Setup
from coterie.engine.kinship import as_sent, found, sketch_of, sketcher


@dataclasses.dataclass(frozen=True)
class KinKept:
    """What is kept of clients' sketches."""

    sketches: PyTree
    """(N, numbers), as they arrived."""
    known: PyTree
    """Who has sent one, and who has trained since:"""
    moved: PyTree
    learnt: int = -1
    """The round before which the graph was learnt last."""
    graph: bytes = b""

    def trained(self, clients: list[int]) -> KinKept:
        moved = np.array(self.moved)
        moved[clients] = True
        return dataclasses.replace(self, moved=moved)


class Sketching:
    """How a client's message has moved, as it is sent."""

    def __init__(self, setup: Setup, rule: GraphRule) -> None:
        self.setup, self.rule = setup, rule
        self.start = flat(setup.first_message())
        self.numbers = rule.numbers(self.start.size)
        self._drawn: Any = None

    def sketch(self, method_state: PyTree) -> NDArray[np.float64]:
        if self._drawn is None:
            self._drawn = sketcher(self.rule, self.start, self.setup.seed)
        moved = sketch_of(self.setup.method, self._drawn, self.start, method_state)
        return as_sent(self.rule, moved)

    def encoded(self, method_state: PyTree) -> bytes:
        return gossip.encoded(self.sketch(method_state), self.rule.bits)

    def decoded(self, wire: bytes) -> NDArray[np.float64]:
        """Raises InvalidInput."""
        return gossip.decoded(wire, self.numbers, self.rule.bits)


class HubKin(Sketching):
    """The hub's side."""

    def __init__(self, setup: Setup, rule: GraphRule) -> None:
        super().__init__(setup, rule)
        self.looks = looks(setup.plan)

    def fresh(self) -> KinKept:
        """Before the first sketches: clients train alone, as they know themselves, and are not
        asked.
        """
        n = self.setup.plan.size
        moved = np.array([bool(self.setup.rounds_alone(k)) for k in range(n)])
        return KinKept(np.zeros((n, self.numbers), np.float32), np.zeros(n, bool), moved)

    def learns(self, t: int) -> int | None:
        """The round before which the graph is learnt, if it is before the t-th with work."""
        return next((look.round for look in self.looks if look.exchange == t), None)

    def due(self, kept: KinKept, t: int) -> bool:
        before = self.learns(t)
        return before is not None and kept.learnt != before

    def asked(self, kept: KinKept) -> list[int]:
        """Who has trained since it sent a sketch."""
        return [int(k) for k in np.flatnonzero(np.asarray(kept.moved))]

    def learnt(self, kept: KinKept, arrived: dict[int, NDArray[np.float64]], t: int) -> KinKept:
        """With these sketches, and the graph of all that are known."""
        sketches, known, moved = (np.array(a) for a in (kept.sketches, kept.known, kept.moved))
        for k, sketch in arrived.items():
            sketches[k], known[k], moved[k] = sketch, True, False
        self.evidence = Evidence(sketches.astype(np.float64), known, self.rule.bits)
        who = np.array(sorted(arrived), np.int64)
        before = self.learns(t)
        assert before is not None
        graph, _ = found(self, who, self.setup.method, self.setup.seed, before)
        file = io.BytesIO()
        np.savez(file, **graph.arrays())  # type: ignore[arg-type]
        return KinKept(sketches, known, moved, before, file.getvalue())

    def graph(self, kept: KinKept) -> Graph:
        if not kept.graph:
            return empty(self.setup.plan.size)
        with np.load(io.BytesIO(kept.graph)) as arrays:
            return from_arrays(dict(arrays), self.setup.plan.size, NAME)
