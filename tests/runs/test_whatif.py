"""What would change the answer: where more rows would help."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from coterie.engine.row_scores import RowScores
from coterie.runs.whatif import hungry


def outcome(scores: np.ndarray) -> Any:
    """Of three clients with 20 rows each."""
    client, row = np.repeat(np.arange(3), 20), np.tile(np.arange(20), 3)
    return SimpleNamespace(rows=RowScores(client, row, {"personal": scores}), view="personal")


def test_who_clearly_learns_from_its_second_half_is_named() -> None:
    half, whole = np.zeros(60), np.zeros(60)
    whole[:15] = 1.0  # client 0 has 15 more rows right
    half[20:22], whole[22:24] = 1.0, 1.0  # client 1 as many better as worse
    half[40:60] = 1.0  # client 2 is worse with all rows: chance
    ((client, gain),) = hungry([outcome(whole)], [outcome(half)])
    assert (client, gain) == (0, 0.75)


def test_nobody_is_named_by_chance_or_where_a_run_collapsed() -> None:
    same = outcome(np.ones(60))
    assert hungry([same], [same]) == ()
    gone = SimpleNamespace(rows=None, view="personal")
    assert hungry([same], [gone]) == ()
