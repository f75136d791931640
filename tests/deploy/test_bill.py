"""The bill of a participant: appended to a file, counted by the state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy.bill import FILE, Bill


def billed(bill: Bill, round_: int) -> Bill:
    after = bill.copy()
    after.add(round_, np.arange(2), np.array([10, 20]) + round_, 7, 1)
    return after


def test_rows_are_appended_and_read_back(tmp_path: Path) -> None:
    bill, whole = Bill(2, folder=tmp_path), Bill(2)
    for t in range(5):
        bill, whole = billed(bill, t), billed(whole, t)
        size = (tmp_path / FILE).stat().st_size if t else 0
        facts = bill.file()
        assert (tmp_path / FILE).stat().st_size == size + 2 * 40
        assert bill.parts == []
    again = Bill(2, folder=tmp_path).resumed(facts)
    np.testing.assert_array_equal(again.rows(), whole.rows())
    assert again.totals() == whole.totals()
    again.write_table(tmp_path / "table")
    table = pq.read_table(tmp_path / "table").to_pandas().to_numpy()
    np.testing.assert_array_equal(table, whole.rows())


def test_rows_that_no_state_knows_are_written_over(tmp_path: Path) -> None:
    """Killed after the rows were written, and before the state was."""
    first = billed(Bill(2, folder=tmp_path), 0)
    facts = first.file()
    billed(billed(first, 1), 2).file()
    again = Bill(2, folder=tmp_path).resumed(facts)
    np.testing.assert_array_equal(again.rows(), billed(Bill(2), 0).rows())
    other = billed(again, 9)
    facts = other.file()
    resumed = Bill(2, folder=tmp_path).resumed(facts)
    assert resumed.rows()[:, 0].tolist() == [0, 0, 9, 9]


def test_rows_that_are_not_those_of_the_state_are_refused(tmp_path: Path) -> None:
    bill = billed(billed(Bill(2, folder=tmp_path), 0), 1)
    facts, path = bill.file(), tmp_path / FILE
    good = path.read_bytes()
    for bad in (good[:-1], b"", good[:80] + b"\xff" + good[81:]):
        path.write_bytes(bad)
        with pytest.raises(InvalidInput, match="restore the whole folder from one copy"):
            Bill(2, folder=tmp_path).resumed(facts)
    path.unlink()
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        Bill(2, folder=tmp_path).resumed(facts)
