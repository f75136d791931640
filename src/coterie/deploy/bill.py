"""The byte bill of a participant: rows that are only ever appended, to a file of their own.

A round's rows are written behind those of the rounds before, and reach the disk before the state
that counts them does: `filed` in the state says how many of them belong to it. A participant that
is killed in between has rows on file that its state does not know; the round is done again and
writes over them. So saving costs the same after 5,000 rounds as after one; and a copy is sound if
the state was copied before the rows.
"""

from __future__ import annotations

import dataclasses
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.files import writing
from coterie.core.ledger import COLUMNS, Ledger

FILE = "ledger.rows"
TABLE = "ledger.parquet"
WIDTH = 8 * len(COLUMNS)
AT_ONCE = 1 << 16
"""Rows that are read at a time."""
LOOK_SECONDS, LOOK_SHARE = 1.0, 0.01
"""The table for people is not written more often than this, nor for a larger share of the time."""


@dataclasses.dataclass
class Bill(Ledger):
    """A ledger whose rows are on file, but for those of the round that is being closed."""

    folder: Path | None = None
    filed: int = 0
    """Rows on file that belong to this bill."""
    crc: int = 0
    """Their checksum."""

    @property
    def path(self) -> Path:
        assert self.folder is not None
        return self.folder / FILE

    # -- to and from a state -----------------------------------------------------------------------

    def file(self) -> dict[str, int]:
        """Put the new rows on file; gives what the state has to keep.

        Raises InvalidInput, and then rows may have been written that nothing knows of.
        """
        rows = self.take().astype("<i8").tobytes()
        if rows:
            try:
                with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as f:
                    f.seek(self.filed * WIDTH)
                    f.write(rows)
                    f.flush()
                    os.fsync(f.fileno())
            except OSError as error:
                why = error.strerror or error
                raise InvalidInput(f"{self.path} cannot be written: {why}.") from None
            self.filed, self.crc = self.filed + len(rows) // WIDTH, zlib.crc32(rows, self.crc)
        return {"filed": self.filed, "crc": self.crc, **self.totals()}

    def resumed(self, facts: dict[str, int]) -> Bill:
        """As a state has it. Raises InvalidInput when the file does not hold its rows."""
        bill = Bill(self.clients, folder=self.folder, filed=facts["filed"], crc=facts["crc"])
        bill.carry_on(facts)
        crc = 0
        for some in bill._on_file():
            crc = zlib.crc32(some, crc)
        if crc != bill.crc:
            raise InvalidInput(
                f"{str(self.path)!r} is damaged or of another run: its first {bill.filed} rows are"
                " not those that the run has billed; restore the whole folder from one copy."
            )
        return bill

    def former(self, data: bytes) -> Bill:
        """As states had it before there was a file of rows: all rows, which are still to be put on
        file.
        """
        old = Ledger.from_bytes(self.clients, data)
        return Bill(**vars(old), folder=self.folder)

    # -- reading -----------------------------------------------------------------------------------

    def _on_file(self) -> Iterator[bytes]:
        left = self.filed * WIDTH
        if not left:
            return
        try:
            with self.path.open("rb") as f:
                while left and (some := f.read(min(left, AT_ONCE * WIDTH))):
                    left -= len(some)
                    yield some
        except OSError as error:
            raise InvalidInput(
                f"{str(self.path)!r} cannot be read: {error.strerror or error}; it holds what was"
                " billed so far."
            ) from None

    def parts_of_rows(self) -> Iterator[NDArray[np.int64]]:
        """All rows, some at a time."""
        for some in self._on_file():
            yield np.frombuffer(some, "<i8").reshape(-1, len(COLUMNS)).astype(np.int64)
        yield from self.parts

    def rows(self) -> NDArray[np.int64]:
        empty = np.zeros((0, len(COLUMNS)), np.int64)
        return np.concatenate([empty, *self.parts_of_rows()])

    def write_table(self, path: Path) -> None:
        """The rows as a Parquet file, for people and their tools."""
        schema = pa.schema([(name, pa.int64()) for name in COLUMNS])
        with writing(path) as temporary, pq.ParquetWriter(temporary, schema) as out:
            for rows in self.parts_of_rows():
                out.write_table(pa.table(list(rows.T), schema=schema))

    def copy(self) -> Bill:
        return dataclasses.replace(self, parts=list(self.parts))


class Lookout:
    """Writes the table for people, now and then. Nothing is read back from it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TABLE
        self._due = float("-inf")

    def look(self, bill: Bill, *, now: bool = False) -> None:
        began = time.monotonic()
        if not now and began < self._due:
            return
        bill.write_table(self.path)
        ended = time.monotonic()
        self._due = ended + max(LOOK_SECONDS, (ended - began) / LOOK_SHARE)


def ledger_of(like: Any, packed: Any, arrays: dict[str, Any], where: str) -> Bill:
    """What a state file says of a bill, read back; `like` knows the folder."""
    assert isinstance(like, Bill)
    if isinstance(packed, int):  # format 4
        return like.former(arrays[where].tobytes())
    return like.resumed({key: int(value) for key, value in packed.items()})
