"""Real peers over Zenoh that find their kin, one killed while they look for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.deploy.plan import Plan
from tests.support.peering import NAMES, Town, make_plan, seeking_town, the_digits
from tests.support.town_checks import WELL, check_equal

RULE = {"name": "kin", "neighbours": 2, "after": 3, "ties": "both", "gossip": 4, "tell": 2}


def seeking(
    rule: dict[str, Any] | None = None, clients: tuple[str, ...] = NAMES, **more: Any
) -> Plan:
    graph = {"kind": "learn", "rule": {**RULE, **(rule or {})}}
    plan = make_plan(the_digits(), "dfedu", **more)
    return plan.with_(clients=clients, graph=graph)


def looks(town: Town, name: str) -> bool:
    return bool(town.status(name)["round"] >= 3)


def in_the_middle(town: Town, name: str) -> bool:
    step = str(town.status(name).get("step", "99"))
    return looks(town, name) and int(step.split()[0]) >= 2


@pytest.mark.slow
def test_five_peers_one_killed(tmp_path: Path) -> None:
    """While they look for kin, so that the others wait for it, and again in a round. All know the
    address of the first only.
    """
    plan = seeking(rounds=40)
    with seeking_town(tmp_path, plan, the_digits()) as town:
        town.start(*NAMES[:4])
        town.until(lambda: all(looks(town, name) for name in NAMES[:4]), "a search")
        time.sleep(1)  # they get as far as they can without the last one
        town.kill("p2")
        town.start("p4")
        time.sleep(1)
        town.start("p2")
        town.until(lambda: town.status("p0")["round"] >= 10, "round 10")
        town.kill("p0")
        time.sleep(1)
        town.start("p0")
        assert town.wait() == WELL, town.logs()
        check_equal(town, plan)
        assert all("its kin: " in town.log(name) for name in NAMES)


@pytest.mark.slow
def test_going_on_without_one_that_dies(tmp_path: Path) -> None:
    rules = {"on_missing": "go-on", "patience": 4.0, "staleness": 2, "give_up": 300.0}
    plan = seeking({"gossip": 6}, rounds=12, rules=rules)
    with seeking_town(tmp_path, plan, the_digits()) as town:
        town.start(*NAMES)
        town.until(lambda: in_the_middle(town, "p3"), "a second phase")
        town.kill("p3")
        others = [name for name in NAMES if name != "p3"]
        assert town.wait(*others) == dict.fromkeys(others, 0), town.logs()
        assert all((town.state(name) / "models").is_dir() for name in others)


def twenty(folder: Path) -> None:
    """Twenty peers, one killed on the way; run by hand: python -m tests.deploy.test_zenoh_kin."""
    fed = coterie.load("digits", clients=20)
    names = tuple(f"p{k}" for k in range(20))
    plan = seeking({"gossip": 6, "neighbours": 4, "tell": 3}, names, rounds=20)
    begun = time.monotonic()
    with seeking_town(folder, plan, fed) as town:
        town.start(*names)
        town.until(lambda: in_the_middle(town, "p7"), "a second phase", 900)
        town.kill("p7")
        time.sleep(2)
        town.start("p7")
        codes = town.wait(seconds=1800)
        assert codes == dict.fromkeys(names, 0), town.logs()
        check_equal(town, plan, names=names, fed=fed)
        print(f"twenty peers: the simulator's models and bill, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        twenty(Path(folder))
