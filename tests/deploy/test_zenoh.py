"""Real peers over Zenoh end as the simulator does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.peering import NAMES, make_plan, peer_town, the_digits
from tests.support.town_checks import WELL, check_equal


def test_five_peers(tmp_path: Path) -> None:
    """Certificates, the same models and the same bill as the simulator."""
    plan = make_plan(the_digits(), "dfedu", rounds=4)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        assert town.wait(seconds=300) == WELL, town.logs()
        check_equal(town, plan)
        assert all(n["rejected"] == 0 for name in NAMES for n in town.status(name)["neighbours"])
        billed = {name: town.ledger(name)[:, 2:4].sum(0) for name in NAMES}
        for name in NAMES:  # what was handed to Zenoh, counted there
            assert f"sent its neighbours {billed[name][0]} bytes" in town.log(name), (
                billed,
                town.log(name),
            )
        assert sum(up for up, _ in billed.values()) == sum(
            down for _, down in billed.values()
        )  # and what arrived, counted by the receivers


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("method", ["dfedu", "graph-proj"])
def test_ten_rounds(tmp_path: Path, method: str, precision: str) -> None:
    plan = make_plan(the_digits(), method, rounds=10, precision=precision)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        assert town.wait() == WELL, town.logs()
        check_equal(town, plan, 1e-5 if precision == "float32" else 1e-10)


@pytest.mark.slow
def test_compressed(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), "dfedu", "delta", rounds=10)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        assert town.wait() == WELL, town.logs()
        check_equal(town, plan)
