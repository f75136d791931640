"""Arrays much larger than what is used of them: only what is touched takes room.

NumPy asks the system for huge pages, so that a row of a few kB makes 2 MB resident (`zeros` does
not). And pages of a mapped file stay resident after they were looked at, some neighbours with each,
although the system keeps them in its own cache anyway: `RowFile` reads and writes rows instead, and
`chunks` lets pages go.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 24
"""Bytes of an array that are looked at at once."""


def zeros(shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """Zeros that take room page by page as they are written."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape, dtype)
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(room, "MADV_NOHUGEPAGE")
    return np.frombuffer(room, dtype).reshape(shape)


def chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """An array in parts along axis 0; of a mapped file one part is resident at a time."""
    each = max(1, CHUNK // max(1, array[:1].nbytes))
    room = _mapping(array)
    for begin in range(0, len(array), each):
        yield array[begin : begin + each]
        if room is not None:
            _advise(room, "MADV_DONTNEED")


class RowFile:
    """Rows of bytes in a file, read and written where they are; no page of it is mapped.

    `file` is open without a buffer; rows begin at the byte `begin`.
    """

    def __init__(self, file: Any, width: int, begin: int = 0) -> None:
        self.file, self.width, self.begin = file, width, begin

    def read(self, first: NDArray[Any], count: NDArray[Any], out: NDArray[Any]) -> None:
        """Rows first[i] … first[i] + count[i] − 1 for every i, one after the other, into `out`."""
        view, place = out.reshape(-1).view(np.uint8).data, 0
        for row, rows in _runs(first, count):
            here = view[place : place + rows * self.width]
            place += len(here)
            self.file.seek(self.begin + row * self.width)
            while len(here):
                found = self.file.readinto(here)
                if not found:
                    raise OSError("the file is shorter than it was")
                here = here[found:]

    def write(self, first: NDArray[Any], rows: NDArray[Any]) -> None:
        """A row for every number in `first`."""
        view, place = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data, 0
        for row, count in _runs(first, np.ones(len(first), np.int64)):
            here = view[place : place + count * self.width]
            place += len(here)
            self.file.seek(self.begin + row * self.width)
            while len(here):
                here = here[self.file.write(here) :]


def in_file(array: NDArray[Any]) -> RowFile | None:
    """The rows of an array that is a whole mapped file, such as `np.load(path, mmap_mode="r")`;
    None of any other.
    """
    whole = _mapping(array) is not None and not isinstance(array.base, np.ndarray)
    if not whole or not array.flags.c_contiguous or not array.size:
        return None
    assert isinstance(array, np.memmap)
    if array.filename is None:
        return None
    file = Path(array.filename).open("rb", buffering=0)  # noqa: SIM115 - it is kept
    return RowFile(file, array[:1].nbytes, array.offset)


def _runs(first: NDArray[Any], count: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Rows that follow each other, together: where they begin, and how many they are."""
    first, count = np.asarray(first, np.int64), np.asarray(count, np.int64)
    if not len(first):
        return
    cut = np.flatnonzero(first[1:] != first[:-1] + count[:-1]) + 1
    heads = np.concatenate([[0], cut])
    totals = np.add.reduceat(count, heads)
    yield from zip(first[heads].tolist(), totals.tolist(), strict=True)


def _mapping(array: Any) -> mmap.mmap | None:
    """The mapped file behind an array; None where there is none, or where changes are private."""
    if not isinstance(array, np.memmap) or array.mode == "c":
        return None
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _advise(room: mmap.mmap, name: str) -> None:
    advice = getattr(mmap, name, None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a hint, no more
            room.madvise(advice)
