"""What a rule is that learns a client graph while the clients train.

At first the clients train alone, for `after` rounds, and send nothing. Then each sends a sketch:
a random projection P v of how its message has moved since the start, v = m_k − m_0. All know P from
the shared seed, so it is never sent. ⟨P v_k, P v_l⟩ estimates ⟨v_k, v_l⟩ up to a factor, so a rule
sees who has moved in which direction for the bytes of a few numbers, or of a few bits. From the
sketches the rule makes the graph of the rounds that follow.

A rule is a small class like a method: its options, and `graph`, which makes a graph of sketches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, shown
from coterie.core.options import Options, by_name, chosen, option, registered
from coterie.coupling.graph import Graph, from_edges

RULES: dict[str, type[GraphRule]] = {}
ROWS = 1024
"""Clients that are compared with all others at once."""
NAME = "learnt"


class Evidence(NamedTuple):
    """What is known of the clients when a graph is made."""

    sketches: NDArray[np.float64]
    """(N, numbers), as they arrived: with 1 bit each, −1 or 1."""
    known: NDArray[np.bool_]
    """Who has sent one."""
    bits: int = 32
    """Per number."""
    tried: Callable[[NDArray[Any]], NDArray[np.float64]] | None = None
    """For rules that try models (`GraphRule.downloads`): of sets of clients, (N, R, S) with −1 for
    nobody, the loss on every client's validation rows of each set's mean model, (N, R).
    """

    @property
    def clients(self) -> int:
        return len(self.sketches)

    def cosines(self, sketches: NDArray[Any]) -> NDArray[np.float64]:
        """Estimates of cos(v, v_l) of vectors with these sketches and all clients', (rows, N).

        Of two vectors at the angle φ, a random hyperplane separates a share φ/π: that is what signs
        tell.
        """
        s = self.sketches
        if self.bits == 1:
            agree = (1 + sketches @ s.T / s.shape[1]) / 2
            return np.asarray(np.cos(np.pi * (1 - agree)))
        length = lambda v: np.maximum(np.linalg.norm(v, axis=1), 1e-300)
        return np.asarray((sketches @ s.T) / np.outer(length(sketches), length(s)))

    def losses(self, sets: NDArray[Any]) -> NDArray[np.float64]:
        assert self.tried is not None
        return self.tried(sets)

    def squared_distances(self) -> NDArray[np.float64]:
        """Estimates of ‖v_k − v_l‖² up to a factor, (N, N); from signs, of vectors of length 1."""
        if self.bits == 1:
            return 2 - 2 * self.cosines(self.sketches)
        squares = np.sum(self.sketches**2, axis=1)
        d = squares[:, None] + squares[None] - 2 * self.sketches @ self.sketches.T
        return np.asarray(np.maximum(d, 0.0))


class Gossiped(NamedTuple):
    """A graph that peers have found without a hub, and the bytes that each sent and got for it."""

    graph: Graph
    up: NDArray[np.int64]
    down: NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphRule(Options):
    """A rule with the options that all rules have. It stands where a graph is given."""

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    tries_models: ClassVar[bool] = False
    """Whether clients download others' models and try them on their validation rows."""

    after: int = option(
        5, "rounds in which clients train alone and send nothing, before the first graph", low=1
    )
    every: int = option(
        0,
        "learn the graph anew every so many rounds; 0: once. Where few clients are sampled in a"
        " round, later ones are found only then",
        low=0,
    )
    sketch: int = option(64, "numbers of a sketch; 0: the whole message", symbol="m", low=0)
    bits: int = option(32, "bits of each number of a sketch: 32, or 1 (its sign)", low=1, high=32)
    weight: float = option(1.0, "scales all weights", symbol="a_kl", above=0)

    def validate(self) -> None:
        if self.bits not in (1, 32):
            raise InvalidInput(f"{self.name}.bits is {self.bits}, but must be 1 or 32.")

    def graph(self, evidence: Evidence) -> Graph:
        """The graph of the rounds that follow; who is not known has no neighbours."""
        raise NotImplementedError

    def gossiped(self, evidence: Evidence, seed: int, t: int, message: int) -> Gossiped | None:
        """Without a hub: the graph of round t that peers find among themselves; None where all must
        know all, to call `graph`. `message` is how many numbers a message has.
        """
        return None

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        """The weights of a newcomer to the clients, of the cosines of its sketch with theirs (−∞
        where a client is not known).
        """
        raise NotImplementedError

    def downloads(self, evidence: Evidence) -> NDArray[np.int64]:
        """Where models are tried: whose by whom, (clients, models), −1 for nobody's."""
        return np.full((evidence.clients, 0), -1)

    @property
    def gossips(self) -> bool:
        """Whether peers find their graph among themselves (`gossiped`)."""
        return False

    def most(self, clients: int) -> int:
        """Neighbours that a client can have at most."""
        return clients - 1

    def due(self, t: int) -> bool:
        """Whether the graph is learnt before round t."""
        if t < self.after:
            return False
        return t == self.after or (self.every > 0 and (t - self.after) % self.every == 0)

    def until(self, t: int) -> int:
        """How many rounds may go before the graph is learnt; 0: as many as there are."""
        if t < self.after:
            return self.after - t
        return self.every - (t - self.after) % self.every if self.every else 0

    def numbers(self, message: int) -> int:
        """Numbers of a sketch of a message with so many. There may be more signs than numbers."""
        if not self.sketch:
            return message
        return self.sketch if self.bits == 1 else min(self.sketch, message)

    def sketch_bytes(self, message: int) -> int:
        """What a client sends to be found."""
        return math.ceil(self.numbers(message) * self.bits / 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbourly(GraphRule):
    """Shared by rules that keep few neighbours of each client."""

    neighbours: int = option(
        20, "others that each client looks at (all, where there are fewer)", symbol="k", low=1
    )
    crowd: float = option(
        3.0, "nobody has more than this many times `neighbours` neighbours", low=1, static=True
    )

    def most(self, clients: int) -> int:
        return min(clients - 1, int(self.crowd * self.neighbours))

    def strongest(
        self, low: NDArray[Any], high: NDArray[Any], weights: NDArray[Any], clients: int
    ) -> Graph:
        """A graph of these edges, without those that are too many for one of their ends."""
        kept = ranks(low, high, weights) < self.most(clients)
        return from_edges(clients, low[kept], high[kept], weights[kept], NAME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled(Neighbourly):
    """Shared by rules whose weights differ; only their proportions count."""

    total: float = option(9.0, "what a client's weights add up to, on average", above=0)

    def scaled(self, weights: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Weights of edges, so that a known client's add up to `total` on average."""
        sum_ = float(weights.sum())
        scale = self.weight * self.total * int(known.sum()) / (2 * sum_) if sum_ else 1.0
        return np.asarray(scale * weights)

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        """Its `neighbours` nearest, alike, adding up to `total`."""
        best = top(cosines[None], self.neighbours)[0]
        best = best[np.isfinite(cosines[best])]
        out = np.zeros(len(cosines))
        out[best] = self.weight * self.total / max(1, len(best))
        return out


@dataclass_transform(frozen_default=True, kw_only_default=True)
def rule(name: str, title: str, paper: str = "") -> Callable[[type[Any]], type[Any]]:
    """Register a rule under a name."""
    return registered(RULES, name, title=title, paper=paper)


def get_rule(name: str, options: dict[str, Any] | None = None) -> GraphRule:
    """A rule by its name, with its options."""
    found: GraphRule = chosen(RULES, "the rule that learns the graph,", name, options)
    return found


def learn_graph(rule: str = "kin", **options: Any) -> GraphRule:
    """What stands in the place of a graph that is to be learnt while training.

    >>> learn_graph("kin", neighbours=3).after
    5
    """
    return get_rule(rule, options)


def read_rule(field: str, value: Any) -> GraphRule:
    """An option `rule` from what was given: a name, or a table of a name and options."""
    value = by_name(RULES, field, value)
    if not isinstance(value, GraphRule):
        raise InvalidInput(
            f"{field} is {shown(value)}, but must be a name or a table of a name and options."
        )
    return value


def top(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """In every row the places of the `count` largest values, the largest first; of equal ones that
    which stands first.
    """
    count = min(count, values.shape[1])
    if count == 0 or 4 * count >= values.shape[1]:
        return np.argsort(-values, axis=1, kind="stable")[:, :count]
    some = np.argpartition(-values, count - 1, axis=1)[:, :count]
    some.sort(axis=1)  # so that a stable sort puts the first of equal ones first
    found = np.take_along_axis(values, some, 1)
    out = np.take_along_axis(some, np.argsort(-found, axis=1, kind="stable"), 1)
    # Where more than these are equal to the least of them, others may stand first.
    least = found.min(1, keepdims=True)
    tied = (values == least).sum(1) > (found == least).sum(1)
    if tied.any():
        out[tied] = np.argsort(-values[tied], axis=1, kind="stable")[:, :count]
    return np.asarray(out, np.int64)


class Pairs(NamedTuple):
    """Pairs of clients, every pair once."""

    low: NDArray[np.int64]
    """The smaller number of each pair, and the larger one:"""
    high: NDArray[np.int64]
    cosines: NDArray[np.float64]
    both: NDArray[np.bool_]
    """Whether each of the two chose the other."""

    def where(self, kept: NDArray[np.bool_]) -> Pairs:
        return Pairs(self.low[kept], self.high[kept], self.cosines[kept], self.both[kept])


def candidates(evidence: Evidence, count: int) -> Pairs:
    """The pairs of which one is among the `count` others with the largest cosines of the other.
    Rows are compared in groups, so that N² numbers are never held.
    """
    whose, others, values = [], [], []
    ids = np.flatnonzero(evidence.known)
    for start in range(0, len(ids), ROWS):
        rows = ids[start : start + ROWS]
        cosines = evidence.cosines(evidence.sketches[rows])[:, ids]
        cosines[np.arange(len(rows)), start + np.arange(len(rows))] = -np.inf
        best = top(cosines, min(count, len(ids) - 1))
        whose.append(np.repeat(rows, best.shape[1]))
        others.append(ids[best].reshape(-1))
        values.append(np.take_along_axis(cosines, best, 1).reshape(-1))
    flat = lambda parts, kind: np.concatenate(parts) if parts else np.zeros(0, kind)
    one, other = flat(whose, np.int64), flat(others, np.int64)
    low, high = np.minimum(one, other), np.maximum(one, other)
    pair = low * evidence.clients + high
    _, first, times = np.unique(pair, return_index=True, return_counts=True)
    return Pairs(low[first], high[first], flat(values, np.float64)[first], times > 1)


def empty(clients: int) -> Graph:
    """The graph before anybody is known."""
    nobody = np.zeros(0, np.int64)
    return from_edges(clients, nobody, nobody, 1.0, NAME)


def ranks(low: NDArray[Any], high: NDArray[Any], strength: NDArray[Any]) -> NDArray[np.int64]:
    """How many stronger edges each edge's ends have; the larger of the two numbers."""
    count = len(low)
    ends = np.concatenate([low, high])
    both = np.concatenate([strength, strength])
    order = np.lexsort((np.arange(2 * count), -both, ends))
    begun = np.searchsorted(ends[order], ends[order], "left")
    ranks = np.empty(2 * count, np.int64)
    ranks[order] = np.arange(2 * count) - begun
    return np.asarray(np.maximum(ranks[:count], ranks[count:]))
