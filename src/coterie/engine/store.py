"""Where the states of N clients live: on the device, in host memory, or in a memory-mapped file.

Only the rows of a cohort move.

Host and file stores keep a row of bytes per client. A client that never trained takes no memory
worth speaking of: its row is the common initial one until it is first written.
"""

from __future__ import annotations

import abc
import math
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from coterie.core import crew
from coterie.core.errors import InvalidInput
from coterie.engine.mesh import fetched, put_clients, take


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
    """Rows in host memory (kind "host") or in a memory-mapped scratch file (kind "file").

    Of several processes each keeps the rows of its own share of the clients.
    """

    def __init__(
        self, clients: int, initial: Any, kind: str = "host", path: Path | None = None
    ) -> None:
        self.kind = kind
        self.clients, self.format = clients, RowFormat(initial)
        self.default = self.format.initial_row() if self.format.bytes else np.zeros(0, np.uint8)
        self.touched = np.zeros(clients, bool)
        self.path = path

    @cached_property
    def rows(self) -> NDArray[np.uint8]:
        """(N, bytes per client); made when first needed, so that nothing is written before a run
        begins.
        """
        shape = (self.clients, self.format.bytes)
        if self.kind == "host" or not math.prod(shape):
            return np.zeros(shape, np.uint8)
        try:
            # Scratch only: after a crash it is rebuilt from checkpoints, never trusted. Untouched
            # parts stay holes in the file.
            where: Any = self.path or tempfile.TemporaryFile()  # noqa: SIM115 - the map keeps it
            return np.memmap(where, np.uint8, "w+", shape=shape)
        except OSError as error:
            raise InvalidInput(
                f"the store file {self.path} cannot be written: {error.strerror or error}."
            ) from None

    def packed(self, ids: NDArray[Any]) -> NDArray[np.uint8]:
        out = np.asarray(self.rows[ids])
        if crew.count() > 1:
            everybodys = crew.gathered(out)
            out = everybodys[self.keeper[ids], np.arange(len(ids))]
        out[~self.touched[ids]] = self.default
        return out

    @cached_property
    def keeper(self) -> NDArray[np.int64]:
        """The process that keeps each client's row."""
        return np.arange(self.clients) * crew.count() // self.clients

    def gather(self, ids: NDArray[Any]) -> Any:
        return self.format.unpack(self.packed(np.asarray(ids)))

    def load(self, ids: NDArray[Any], packed: NDArray[np.uint8]) -> None:
        mine = slice(None) if crew.count() == 1 else self.keeper[ids] == crew.index()
        self.rows[ids[mine]] = packed[mine]
        self.touched[ids] = True

    def scatter(self, ids: NDArray[Any], rows: Any) -> None:
        if self.format.bytes:
            self.load(np.asarray(ids), self.format.pack(rows))


def make_store(
    kind: str, clients: int, initial: Any, path: Path | None = None, mesh: Mesh | None = None
) -> Store:
    if kind == "device":
        return DeviceStore(clients, initial, mesh)
    return HostStore(clients, initial, kind, path)
