"""Where the states of N clients live: on the device, in host memory, or in a file.

Only the rows of a cohort move.

Host and file stores keep a row of bytes per client that has trained, in the order in which they
first did. Others have the common initial row. So room follows those that trained, and a cohort that
is new is written in one piece.
"""

from __future__ import annotations

import abc
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core import pages
from coterie.core.errors import InvalidInput


class RowFormat:
    """How a client's state (a pytree) is laid out as bytes."""

    def __init__(self, initial: Any) -> None:
        leaves, self.structure = jax.tree.flatten(initial)
        self.initial = [np.asarray(leaf) for leaf in leaves]
        self.sizes = [leaf.nbytes for leaf in self.initial]
        self.bytes = sum(self.sizes)

    def initial_row(self) -> NDArray[np.uint8]:
        return self.pack(jax.tree.unflatten(self.structure, [leaf[None] for leaf in self.initial]))[
            0
        ]

    def pack(self, rows: Any) -> NDArray[np.uint8]:
        """Stacked states → (count, bytes)."""
        leaves = [np.ascontiguousarray(np.asarray(leaf)) for leaf in jax.tree.leaves(rows)]
        if not leaves:
            return np.zeros((0, 0), np.uint8)
        return np.concatenate(
            [
                (
                    leaf.reshape(len(leaf), -1).view(np.uint8)
                    if leaf.size
                    else np.zeros((len(leaf), 0), np.uint8)
                )
                for leaf in leaves
            ],
            axis=1,
        )

    def unpack(self, packed: NDArray[np.uint8]) -> Any:
        """(count, bytes) → stacked states."""
        out, start = [], 0
        for leaf, size in zip(self.initial, self.sizes, strict=True):
            part = np.ascontiguousarray(packed[:, start : start + size])
            out.append(part.view(leaf.dtype).reshape(len(packed), *leaf.shape))
            start += size
        return jax.tree.unflatten(self.structure, out)


class Store(abc.ABC):
    """The states of N clients; `ids` are client numbers, rows are stacked along axis 0."""

    kind: str
    clients: int
    format: RowFormat
    blocks = False
    """Whether whole blocks of rounds can run on `rows` without coming back to Python."""

    @abc.abstractmethod
    def gather(self, ids: NDArray[Any]) -> Any:
        """The states of some clients."""

    @abc.abstractmethod
    def scatter(self, ids: NDArray[Any], rows: Any) -> None:
        """Put their states back."""

    def prefetch(self, ids: NDArray[Any]) -> None:  # noqa: B027 - most have nothing to do
        """The states of these clients will be asked for next."""

    @abc.abstractmethod
    def packed(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        """The states of some clients as bytes (for a checkpoint)."""

    @abc.abstractmethod
    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        """Overwrite states from bytes (resuming)."""


class DeviceStore(Store):
    """All rows as stacked arrays on the device: whole blocks of rounds run without coming back to
    Python.
    """

    kind = "device"
    blocks = True

    def __init__(self, clients: int, initial: Any) -> None:
        self.clients, self.format = clients, RowFormat(initial)
        self.rows = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], clients, axis=0), initial)

    def gather(self, ids: NDArray[Any]) -> Any:
        return jax.tree.map(lambda r: r[ids], self.rows)

    def scatter(self, ids: NDArray[Any], rows: Any) -> None:
        self.rows = jax.tree.map(lambda r, v: r.at[ids].set(v), self.rows, rows)

    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        if self.format.bytes and len(ids):
            new = self.format.unpack(packed)
            self.rows = jax.tree.map(lambda r, v: r.at[ids].set(v), self.rows, new)

    def packed(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        return (
            self.format.pack(jax.tree.map(lambda r: np.asarray(r)[ids], self.rows))
            if self.format.bytes
            else np.zeros((len(ids), 0), np.uint8)
        )


class HostStore(Store):
    """Rows in host memory."""

    kind = "host"

    def __init__(self, clients: int, initial: Any) -> None:
        self.clients, self.format = clients, RowFormat(initial)
        self.default = self.format.initial_row() if self.format.bytes else np.zeros(0, np.uint8)
        self.place: NDArray[np.int64] = np.full(clients, -1, np.int64)
        """Which row is a client's; −1: none yet."""
        self.used = 0
        self.ahead: tuple[NDArray[Any], NDArray[np.uint8]] | None = None
        """Clients that were prefetched, sorted, and their rows."""

    @cached_property
    def rows(self) -> NDArray[np.uint8]:
        """(N, bytes per client), of which the first `used` are in use."""
        return pages.zeros((self.clients, self.format.bytes))

    def read(self, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self.rows[places]

    def write(self, places: NDArray[np.int64], packed: NDArray[np.uint8]) -> None:
        self.rows[places] = packed

    def packed(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        if self.ahead is not None and np.array_equal(self.ahead[0], ids):
            found, self.ahead = self.ahead[1], None
            return found
        places = self.place[ids]
        known = places >= 0
        if known.all():
            return self.read(places)
        out = np.repeat(self.default[None], len(places), axis=0)
        out[known] = self.read(places[known])
        return out

    def prefetch(self, ids: NDArray[Any]) -> None:
        if self.format.bytes:
            self.ahead = None
            self.ahead = ids, self.packed(ids)

    def gather(self, ids: NDArray[Any]) -> Any:
        return self.format.unpack(self.packed(np.asarray(ids)))

    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        new = np.unique(ids[self.place[ids] < 0])
        self.place[new] = self.used + np.arange(len(new))
        self.used += len(new)
        self.write(self.place[ids], packed)
        if self.ahead is not None:  # what was prefetched is as new as what is written
            waiting, found = self.ahead
            last = dict(zip(ids.tolist(), range(len(ids)), strict=True))
            for i, client in enumerate(waiting.tolist()):
                if client in last:
                    found[i] = packed[last[client]]

    def scatter(self, ids: NDArray[Any], rows: Any) -> None:
        if self.format.bytes:
            self.load(np.asarray(ids), self.format.pack(rows))


class FileStore(HostStore):
    """Rows in a scratch file: after a crash it is made anew from checkpoints, never trusted."""

    kind = "file"

    def __init__(self, clients: int, initial: Any, path: Path | None = None) -> None:
        super().__init__(clients, initial)
        self.path = path

    @cached_property
    def file(self) -> pages.RowFile:
        """Made when first needed, so that nothing is written before a run begins."""
        try:
            if self.path is None:
                file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is kept
            else:
                file = self.path.open("w+b", buffering=0)
        except OSError as error:
            raise InvalidInput(
                f"the store file {self.path} cannot be written: {error.strerror or error}."
            ) from None
        return pages.RowFile(file, self.format.bytes)

    def read(self, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        out = np.empty((len(places), self.format.bytes), np.uint8)
        self.file.read(places, np.ones(len(places), np.int64), out)
        return out

    def write(self, places: NDArray[np.int64], packed: NDArray[np.uint8]) -> None:
        self.file.write(places, packed)


def make_store(kind: str, clients: int, initial: Any, path: Path | None = None) -> Store:
    if kind == "device":
        return DeviceStore(clients, initial)
    return FileStore(clients, initial, path) if kind == "file" else HostStore(clients, initial)
