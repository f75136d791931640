"""A small form of the attacks on a hub's gate: memory holds, and the rounds of the honest go on."""

from __future__ import annotations

import pytest

from bench.limits import measured, table


@pytest.mark.slow
def test_attacks_cost_neither_memory_nor_rounds() -> None:
    names = ["idle", "bodies", "written", "answered"]
    found = measured(0.05, 4.0, names)
    assert [*found] == ["", *names]
    for name, harm in found.items():
        assert harm.gate < 50, (name, harm)
        assert harm.asker < 50, (name, harm)
        assert harm.rounds > 0, (name, harm)
        assert harm.pause < 10, (name, harm)
    assert table(found).count("\n") == 2 + len(names)
