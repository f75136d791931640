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
from jax.sharding import Mesh
from numpy.typing import NDArray

from coterie.core import crew, pages
from coterie.core.errors import InvalidInput
from coterie.engine.mesh import fetched, put_clients, take

ROOM = 1 << 28
"""Bytes of clients' states that evaluations and checkpoints have at hand at once, or one state."""


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
        leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(fetched(rows))]
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

    def fitting(self, clients: int) -> int:
        """How many states to have at hand at once: so many, or as many as take ROOM."""
        return max(1, min(clients, ROOM // max(1, self.format.bytes)))

    def parts(self, ids: NDArray[Any]) -> list[NDArray[Any]]:
        """Clients in parts whose states take ROOM each; at least one part."""
        each = self.fitting(len(ids))
        return [ids[i : i + each] for i in range(0, max(1, len(ids)), each)]

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

    def __init__(self, clients: int, initial: Any, mesh: Mesh | None = None) -> None:
        self.clients, self.format, self.mesh = clients, RowFormat(initial), mesh
        repeated = lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], clients, axis=0)
        self.rows = put_clients(mesh, jax.tree.map(repeated, initial))

    def gather(self, ids: NDArray[Any]) -> Any:
        return take(self.mesh, self.rows, ids)

    def scatter(self, ids: NDArray[Any], rows: Any) -> None:
        new = jax.tree.map(lambda r, v: r.at[ids].set(v), self.rows, rows)
        self.rows = put_clients(self.mesh, new)

    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        if self.format.bytes and len(ids):
            self.scatter(ids, self.format.unpack(packed))

    def packed(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        return (
            self.format.pack(self._here(ids))
            if self.format.bytes
            else np.zeros((len(ids), 0), np.uint8)
        )

    def _here(self, ids: NDArray[Any]) -> Any:
        if self.mesh is None:
            return jax.tree.map(lambda r: np.asarray(r)[ids], self.rows)
        return self.gather(ids)


class HostStore(Store):
    """Rows in host memory; of several processes each keeps those of its share of the clients."""

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
        out = self._kept_here(ids)
        if crew.count() == 1:
            return out
        everybodys: NDArray[np.uint8] = crew.gathered(out)
        return everybodys[self.keeper[ids], np.arange(len(ids))]

    def _kept_here(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        places = self.place[ids]
        known = places >= 0
        if known.all():
            return self.read(places)
        out = np.repeat(self.default[None], len(places), axis=0)
        out[known] = self.read(places[known])
        return out

    @cached_property
    def keeper(self) -> NDArray[np.int64]:
        """The process that keeps each client's row."""
        return np.arange(self.clients) * crew.count() // self.clients

    def prefetch(self, ids: NDArray[Any]) -> None:
        if self.format.bytes:
            self.ahead = None
            self.ahead = ids, self.packed(ids)

    def gather(self, ids: NDArray[Any]) -> Any:
        return self.format.unpack(self.packed(np.asarray(ids)))

    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        mine = slice(None) if crew.count() == 1 else self.keeper[ids] == crew.index()
        self._keep(ids[mine], packed[mine])
        if self.ahead is not None:  # what was prefetched is as new as what is written
            waiting, found = self.ahead
            last = dict(zip(ids.tolist(), range(len(ids)), strict=True))
            for i, client in enumerate(waiting.tolist()):
                if client in last:
                    found[i] = packed[last[client]]

    def _keep(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        new = np.unique(ids[self.place[ids] < 0])
        self.place[new] = self.used + np.arange(len(new))
        self.used += len(new)
        self.write(self.place[ids], packed)

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


def make_store(
    kind: str, clients: int, initial: Any, path: Path | None = None, mesh: Mesh | None = None
) -> Store:
    if kind == "device":
        return DeviceStore(clients, initial, mesh)
    return FileStore(clients, initial, path) if kind == "file" else HostStore(clients, initial)
