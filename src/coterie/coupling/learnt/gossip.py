"""How peers without a hub find their kin: by gossip of sketches.

1. In every phase the peers are paired by chance, by a matching that all draw from the shared seed.
   The two send each other their sketches. Then each tells the other of the few that it knows whose
   sketches are nearest to the other's: a number and a sketch each.
2. After the last phase every peer sends its sketch to those that it would choose as its kin.
3. In ⌈log2 N⌉ steps peers pass on, at distances of 1, 2, 4, … in the order of their numbers, that
   they have done so. After that everybody knows who would choose it.
4. Of those that it would choose and those that would choose it, every peer keeps the nearest, and
   tells each yes or no. An edge is there where both said yes.

Functions are over pairs: who looks at whom. The simulator calls them for all peers, a deployed peer
for itself alone; the same numbers come out whatever other pairs stand beside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.randomness import Role, permute, role_key
from coterie.coupling.learnt.base import Evidence

NUMBER_BYTES = 4
"""Of a client's number, beside a sketch that is passed on."""
WORD_BYTES = 1
"""Of "all before me have chosen", of yes and of no."""
AT_ONCE = 1 << 19
"""Numbers of sketches that are compared at once (4 MB)."""

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]


class Gossips(Protocol):
    """What gossip asks of a rule."""

    @property
    def gossip(self) -> int: ...
    @property
    def tell(self) -> int: ...
    @property
    def neighbours(self) -> int: ...
    @property
    def least(self) -> float: ...
    @property
    def bits(self) -> int: ...


@partial(jax.jit, static_argnames="clients")
def _order(seed: Any, t: Any, phase: Any, clients: int) -> Any:
    key = jax.random.fold_in(jax.random.fold_in(role_key(seed, Role.KIN), t), phase)
    return permute(key, jnp.arange(clients), clients)


def partners(seed: int, t: int, phase: int, clients: int) -> Ids:
    """Everybody's partner in a phase of the gossip before round t; itself for the one that sits
    out, where they are odd in number.

    >>> pairs = partners(0, 5, 1, 7)
    >>> bool((pairs[pairs] == np.arange(7)).all()), int((pairs == np.arange(7)).sum())
    (True, 1)
    """
    order = np.asarray(_order(seed, t, phase, clients), np.int64)
    found, paired = np.arange(clients), clients - clients % 2
    one, other = order[:paired:2], order[1:paired:2]
    found[one], found[other] = other, one
    return found


def strides(clients: int) -> list[int]:
    """The distances at which it is passed on that all have chosen: after the last step everybody
    has heard, through others, of everybody.

    >>> strides(5), strides(1)
    ([1, 2, 4], [])
    """
    return [1 << i for i in range(math.ceil(math.log2(clients)))]


# -- pairs -----------------------------------------------------------------------------------------


def lengths(sketches: Numbers) -> Numbers:
    """Of sketches, a row each."""
    return np.asarray(np.maximum(np.sqrt((sketches * sketches).sum(-1)), 1e-300))


def likeness(dot: Numbers, one: Numbers, other: Numbers, numbers: int, bits: int) -> Numbers:
    """Estimates of the cosines of vectors, from the products of their sketches and the lengths of
    these, a pair in each row (see `Evidence.cosines`). Products and lengths must be sums over a row
    of their own: they then do not depend on what else is computed at the same time, nor on which of
    the two comes first.
    """
    if bits == 1:
        return np.asarray(np.cos(np.pi * (1 - (1 + dot / numbers) / 2)))
    return np.asarray(dot / (one * other))


def best(whose: Ids, whom: Ids, values: Numbers, count: int, least: float = -np.inf) -> Any:
    """A mask of pairs: of those of each peer the `count` with the largest values that are at least
    `least` (−∞: never); of equal values those with the smaller number.
    """
    order = np.lexsort((whom, -values, whose))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(whose[order], whose[order], "left")
    return (rank < count) & (values >= least) & (values > -np.inf)


# -- one peer --------------------------------------------------------------------------------------


def _looked_at(sketch: Numbers, known: Mapping[int, Numbers], bits: int) -> tuple[Ids, Numbers]:
    ids = np.array(sorted(known), np.int64)
    if not len(ids):
        return ids, np.zeros(0)
    others = np.stack([known[int(k)] for k in ids])
    dot = (sketch * others).sum(-1)
    return ids, likeness(dot, lengths(sketch[None]), lengths(others), len(sketch), bits)


def told(
    rule: Gossips, known: Mapping[int, Numbers], partner: int, sketch: Numbers
) -> dict[int, Numbers]:
    """What a peer that knows these tells a partner with this sketch."""
    ids, values = _looked_at(sketch, known, rule.bits)
    values = np.where(ids == partner, -np.inf, values)
    kept = ids[best(np.zeros_like(ids), ids, values, rule.tell)]
    return {int(k): known[int(k)] for k in kept}


def chosen(rule: Gossips, known: Mapping[int, Numbers], own: Numbers) -> list[int]:
    """Whom a peer with this sketch chooses of those that it knows."""
    ids, values = _looked_at(own, known, rule.bits)
    return ids[best(np.zeros_like(ids), ids, values, rule.neighbours, rule.least)].tolist()


# -- all peers at once -----------------------------------------------------------------------------


class Found(NamedTuple):
    """What comes of it: the edges, and the bytes that each peer sent and got."""

    low: Ids
    high: Ids
    up: NDArray[np.int64]
    down: NDArray[np.int64]


def everybody(rule: Gossips, evidence: Evidence, seed: int, t: int, sketch_bytes: int) -> Found:
    """The gossip of all peers before round t. Who is not known takes no part."""
    n, known = evidence.clients, evidence.known
    count = lambda numbers: np.bincount(numbers, minlength=n)
    up, down = np.zeros((2, n), np.int64)
    pairs = np.zeros(0, np.int64)
    """Whose number · N + whom it knows."""
    for phase in range(rule.gossip):
        partner = partners(seed, t, phase, n)
        meets = (partner != np.arange(n)) & known & known[partner]
        whose, whom = np.divmod(pairs, n)
        values = _likeness(evidence, partner[whose], whom)
        values[(whom == partner[whose]) | ~meets[whose]] = -np.inf
        told = best(whose, whom, values, rule.tell)
        whose, whom = whose[told], whom[told]
        sent = sketch_bytes * meets + count(whose) * (sketch_bytes + NUMBER_BYTES)
        up, down = up + sent, down + sent[partner] * meets
        met = np.flatnonzero(meets)
        pairs = _once(pairs, met * n + partner[met], partner[whose] * n + whom)
    whose, whom = _chosen(rule, evidence, pairs)
    word = WORD_BYTES * len(strides(n)) * known
    up, down = up + sketch_bytes * count(whose) + word, down + sketch_bytes * count(whom) + word
    either = _once(whose * n + whom, whom * n + whose)
    up, down = (way + WORD_BYTES * count(either // n) for way in (up, down))
    whose, whom = _chosen(rule, evidence, either)
    both = np.isin(whose * n + whom, whom * n + whose) & (whose < whom)
    return Found(whose[both], whom[both], up, down)


def _once(*pairs: Ids) -> Ids:
    """All of these, sorted, each once."""
    found = np.sort(np.concatenate(pairs))
    return found[np.diff(found, prepend=-1) > 0]


def _chosen(rule: Gossips, evidence: Evidence, pairs: Ids) -> tuple[Ids, Ids]:
    whose, whom = np.divmod(pairs, evidence.clients)
    values = _likeness(evidence, whose, whom)
    kept = best(whose, whom, values, rule.neighbours, rule.least)
    return whose[kept], whom[kept]


def _likeness(evidence: Evidence, one: Ids, other: Ids) -> Numbers:
    """In groups, so that not the sketches of all pairs are held at once."""
    s, dot = evidence.sketches, np.empty(len(one))
    step = max(1, AT_ONCE // max(1, s.shape[1]))
    for i in range(0, len(one), step):
        some = slice(i, i + step)
        dot[some] = (s[one[some]] * s[other[some]]).sum(-1)
    long = lengths(s)
    return likeness(dot, long[one], long[other], s.shape[1], evidence.bits)


# -- on the wire -----------------------------------------------------------------------------------


def encoded(sketch: Numbers, bits: int) -> bytes:
    """A sketch as it is sent: numbers as float32, or signs as bits."""
    if bits == 1:
        return np.packbits(sketch > 0, bitorder="little").tobytes()
    return sketch.astype("<f4").tobytes()


def decoded(wire: bytes, numbers: int, bits: int) -> Numbers:
    """The inverse. Raises InvalidInput."""
    size = math.ceil(numbers * bits / 8)
    if len(wire) != size:
        raise InvalidInput(f"a sketch has {len(wire)} bytes, but must have {size}.")
    if bits == 1:
        given = np.unpackbits(np.frombuffer(wire, np.uint8), bitorder="little")
        return np.where(given[:numbers], 1.0, -1.0)
    found = np.frombuffer(wire, "<f4").astype(np.float64)
    if not np.isfinite(found).all():
        raise InvalidInput("a sketch holds NaN or infinity.")
    return found


def passed_on(known: Mapping[int, Numbers], bits: int) -> bytes:
    """Numbers and sketches of others, as they are told."""
    number = lambda k: k.to_bytes(NUMBER_BYTES, "little")
    return b"".join(number(k) + encoded(known[k], bits) for k in sorted(known))


def heard_of(wire: bytes, numbers: int, bits: int, clients: int) -> dict[int, Numbers]:
    """The inverse. Raises InvalidInput."""
    size = NUMBER_BYTES + math.ceil(numbers * bits / 8)
    if len(wire) % size:
        raise InvalidInput(f"sketches of others have {len(wire)} bytes, not a multiple of {size}.")
    found: dict[int, Numbers] = {}
    for at in range(0, len(wire), size):
        k = int.from_bytes(wire[at : at + NUMBER_BYTES], "little")
        if k >= clients or k in found:
            raise InvalidInput(f"sketches of others name {k}, twice or as one of {clients}.")
        found[k] = decoded(wire[at + NUMBER_BYTES : at + size], numbers, bits)
    return found
