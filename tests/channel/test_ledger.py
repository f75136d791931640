"""Rows add up, and taking them for the disk keeps the totals."""

from __future__ import annotations

import numpy as np

from coterie.core.ledger import COLUMNS, Ledger


def test_rows_and_totals() -> None:
    ledger = Ledger(4)
    ledger.add(0, np.array([1, 3]), np.array([10, 20]), 5, np.array([2, 2]))
    ledger.add(1, np.array([0]), 0, 0, 7)
    assert ledger.rows().tolist() == [[0, 1, 10, 5, 2], [0, 3, 20, 5, 2], [1, 0, 0, 0, 7]]
    assert ledger.totals() == {"up": 30, "down": 10, "gradients": 11}
    assert len(COLUMNS) == ledger.rows().shape[1]


def test_taking_rows_empties_them_but_not_the_totals() -> None:
    ledger = Ledger(2)
    assert ledger.take().shape == (0, 5)
    ledger.add(0, np.arange(2), 8, 8, 1)
    assert len(ledger.take()) == 2
    assert len(ledger.rows()) == 0
    ledger.add(1, np.arange(2), 8, 8, 1)
    assert ledger.take()[:, 0].tolist() == [1, 1]
    assert ledger.totals() == {"up": 32, "down": 32, "gradients": 4}


def test_bills_beyond_32_bits() -> None:
    ledger = Ledger(1)
    for t in range(3):
        ledger.add(t, np.array([0]), np.array([2**31], np.int64), np.array([2**33], np.int64), 1)
    assert ledger.totals()["up"] == 3 * 2**31
    assert ledger.totals()["down"] == 3 * 2**33
