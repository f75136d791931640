"""Real peers over Zenoh end as the simulator does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.peering import NAMES, make_plan, peer_town, star_town, the_digits
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


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedu", "pfedme"])
def test_star(tmp_path: Path, method: str) -> None:
    plan = make_plan(the_digits(), method, rounds=10)
    with star_town(tmp_path, plan) as town:
        town.start("hub", *NAMES)
        assert town.wait() == {"hub": 0, **WELL}, town.logs()
        check_equal(town, plan, names=("hub",))


KIN = {"name": "kin", "neighbours": 2, "after": 3, "every": 20}


@pytest.mark.slow
def test_star_that_learns_its_graph_with_a_client_that_is_killed_and_a_hub_that_is(
    tmp_path: Path,
) -> None:
    """While the hub waits for the last client's sketch, and a client again in a round."""
    plan = make_plan(the_digits(), "fedu", rounds=50).with_(graph={"kind": "learn", "rule": KIN})
    with star_town(tmp_path, plan) as town:
        town.start("hub", *NAMES[:4])
        answered = town.state("p3") / "client.safetensors"
        town.until(answered.is_file, "p3's rounds alone")
        town.kill("hub")
        town.kill("p3")
        assert town.status("hub")["round"] < 0, "the sketches are there already"
        town.start("hub", "p3", "p4")
        town.until(lambda: town.status("hub")["round"] >= 22, "round 22")
        town.kill("p1")
        town.start("p1")
        assert town.wait() == {"hub": 0, **WELL}, town.logs()
        check_equal(town, plan, names=("hub",))


@pytest.mark.slow
def test_star_with_a_client_that_is_killed_and_a_hub_that_is(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), "fedu", rounds=60)
    with star_town(tmp_path, plan) as town:
        town.start("hub", *NAMES)
        town.until(lambda: town.status("hub")["round"] >= 5, "round 5")
        town.kill("p1")
        time.sleep(1)
        town.start("p1")
        town.until(lambda: town.status("hub")["round"] >= 15, "round 15")
        town.kill("hub")
        time.sleep(1)
        town.start("hub")
        assert town.wait() == {"hub": 0, **WELL}, town.logs()
        check_equal(town, plan, names=("hub",))
