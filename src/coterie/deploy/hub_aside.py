"""What a hub of a star does when the messages of a round are too large to be kept in memory.

A mean or a median looks at one coordinate of all messages at a time. So messages are put aside, in
a file of the hub's folder, as they come and in whatever order; and when the round is closed they
are merged some coordinates at a time, which gives the same bits as all at once
(tests/deploy/test_aside.py). Memory is then a few messages and AT_ONCE bytes, whatever the number
of clients. A running sum in the order of arrival would need no file, but would round in another way
than the simulator does, and cannot weigh by samples before all have said how many they have.

Merges that look at whole messages (Krum, …) need all of them: `needs` says how much that is. The
file is of no use to anybody later: a hub that is killed asks again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import CoterieError
from coterie.core.typing import Array, PyTree
from coterie.coupling import merges
from coterie.deploy.setup import Setup
from coterie.methods.star import Averaging
from coterie.report.units import bytes_text

FILE = "arrived.rows"
MEMORY = 256 << 20
"""Bytes of a round's messages up to which they stay in memory."""
AT_ONCE = 64 << 20
"""Bytes of all messages together that are merged at a time."""
UNDER_WAY = 128 << 20
"""Bytes of answers that may be on their way to the hub at a time, where they do not stay in memory.
"""


class NoRoom(CoterieError):
    """The hub's disk has no room for the messages of a round."""


def by_coordinate(method: Any) -> bool:
    """Whether the hub merges messages coordinate by coordinate, and in no other way."""
    kind = type(method)
    return (
        isinstance(method, Averaging)
        and kind.merge is Averaging.merge
        and kind.aggregate is Averaging.aggregate
        and method.merging in merges.BY_COORDINATE
    )


def size(like: PyTree) -> int:
    """Bytes of a message, decoded."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))


def puts_aside(setup: Setup) -> bool:
    """Whether a round's messages are put aside."""
    method, whole = setup.method, setup.plan.cohort * size(setup.message) > MEMORY
    moved = method.begins_from_received and not setup.down.passes  # see exchange.star.ahead
    return bool(setup.star and whole and by_coordinate(method) and not moved)


def at_a_time(setup: Setup) -> int | None:
    """How many clients may send their answers at a time; None: all of them."""
    largest = setup.largest_up
    if setup.plan.cohort * largest <= MEMORY:
        return None
    return max(1, UNDER_WAY // largest)


def needs(setup: Setup) -> str | None:
    """What is said before a run whose messages take much memory; nothing where they do not."""
    each, plan = size(setup.message), setup.plan
    if setup.star and puts_aside(setup):
        return (
            f"a round's {plan.cohort} messages of {bytes_text(each)} are put aside on the disk"
            f" ({bytes_text(plan.cohort * each)}), and merged {bytes_text(AT_ONCE)} at a time."
        )
    if plan.cohort * each <= MEMORY:
        return None
    if not setup.star:
        return (
            f"a hub between neighbours keeps every client's message and what pulls it: about"
            f" {bytes_text(3 * plan.size * each)} of memory for {plan.size} clients."
        )
    how = getattr(setup.method, "merging", "mean")
    copies = 3 if how in ("trimmed", "krum", "multi-krum", "geometric-median") else 2
    return (
        f"a round's {plan.cohort} messages of {bytes_text(each)} are kept in memory, since merging"
        f" {how!r} of {setup.method.name} looks at all of them at once: about"
        f" {bytes_text(copies * plan.cohort * each)}."
    )


class Aside:
    """A round's messages on disk: a row each, in the order in which they came."""

    def __init__(self, folder: Path, like: PyTree) -> None:
        self.path, self.like = folder / FILE, like
        self.rows: dict[int, int] = {}
        self.width = size(like)

    def put(self, k: int, message: PyTree) -> None:
        row = self.rows.setdefault(k, len(self.rows))
        try:
            with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as f:
                f.seek(row * self.width)
                for leaf in jax.tree.leaves(message):
                    f.write(np.ascontiguousarray(leaf).data)
        except OSError as error:
            why = error.strerror or error
            raise NoRoom(
                f"{str(self.path)!r} cannot be written: {why}; it takes"
                f" {bytes_text(self.width)} for every client of a round. The same command goes on"
                " when there is room."
            ) from None

    def clear(self) -> None:
        self.rows.clear()
        self.path.unlink(missing_ok=True)

    def merged(self, method: Averaging, ks: Sequence[int], weights: Array) -> PyTree:
        """The mean (or median) of the messages of these clients, in this order."""
        leaves, kind = jax.tree.leaves(self.like), jax.tree.structure(self.like)
        found, before = [], 0
        with self.path.open("rb") as f:
            for leaf in leaves:
                found.append(self._leaf(f, leaf, before, (method.merging, ks, weights)))
                before += leaf.size * leaf.dtype.itemsize
        return jax.tree.unflatten(kind, found)

    def _leaf(
        self, file: BufferedReader, leaf: Any, before: int, how: tuple[str, Sequence[int], Array]
    ) -> Array:
        kind, ks, weights = how
        width, out = leaf.dtype.itemsize, np.empty(leaf.size, leaf.dtype)
        most = max(1024, AT_ONCE // (len(ks) * width) // 1024 * 1024)
        count = min(most, leaf.size)
        some: NDArray[Any] = np.empty((len(ks), count), leaf.dtype)
        for begin in range(0, leaf.size, count):
            begin = min(begin, leaf.size - count)  # the last piece is as long as the others
            for i, k in enumerate(ks):
                at = self.rows[k] * self.width + before + begin * width
                file.seek(at)
                if file.readinto(some[i].data) != count * width:
                    raise NoRoom(f"{str(self.path)!r} was changed while the hub worked with it.")
            out[begin : begin + count] = _some(kind, some, weights)
        return jnp.asarray(out).reshape(leaf.shape)


@partial(jax.jit, static_argnames="kind")
def _some(kind: str, messages: Array, weights: Array) -> Array:
    """Of some coordinates of all messages."""
    settings = merges.Settings(kind)
    found: Array = merges.robust_merge(settings, None, [messages], weights)[0]
    return found
