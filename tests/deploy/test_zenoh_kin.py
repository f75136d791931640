"""Real peers over Zenoh that find their kin, one killed while they look for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.data.federation import Federation, pack
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
def test_five_peers_look_again_two_killed(tmp_path: Path) -> None:
    """One in a round; the others wait for it, some in the next search, and one of these is killed
    too. Over public copies, so that new neighbours get whole ones.
    """
    rule = {"neighbours": 1, "gossip": 2, "tell": 1, "every": 8}
    plan = seeking(rule, rounds=40, channel="delta", precision="float64")
    with seeking_town(tmp_path, plan, the_digits()) as town:
        town.start(*NAMES)
        town.until(lambda: town.status("p4")["round"] >= 13, "round 13")
        town.kill("p4")
        again = lambda: [n for n in NAMES[:4] if town.status(n).get("look", 0) >= 2]
        town.until(lambda: bool(again()), "a third search")
        killed = again()[0]
        town.kill(killed)
        town.start("p4")
        time.sleep(1)
        town.start(killed)
        assert town.wait() == WELL, town.logs()
        check_equal(town, plan, rtol=1e-10)
        assert "looking for kin" in town.log(killed)
        assert all("round 35 of 40, with" in town.log(name) for name in NAMES)


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


def many(clients: int = 20) -> Federation:
    """Clients of four kinds and of one size, so that their programs are compiled once."""
    rng = np.random.default_rng(11)
    kinds = rng.standard_normal((4, 3, 6))

    def part(count: int) -> Any:
        out = []
        for k in range(clients):
            x = rng.standard_normal((count, 6)).astype(np.float32)
            out.append((x, np.argmax(x @ kinds[k % 4].T, axis=1).astype(np.int32)))
        return pack(out)

    return Federation("many", part(30), part(4), part(8), classes=3)


SMALL = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Twenty processes on one machine: few threads and few arenas each."""


@pytest.mark.slow
def test_twenty_peers_one_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    fed, names = many(), tuple(f"p{k}" for k in range(20))
    rule = {"gossip": 6, "neighbours": 4, "tell": 3}
    plan = make_plan(fed, "dfedu", rounds=20).with_(
        clients=names, graph={"kind": "learn", "rule": {**RULE, **rule}}
    )
    begun = time.monotonic()
    with seeking_town(tmp_path, plan, fed) as town:
        town.start(*names)
        town.until(lambda: in_the_middle(town, "p7"), "a second phase", 900)
        town.kill("p7")
        time.sleep(2)
        town.start("p7")
        assert town.wait(seconds=1800) == dict.fromkeys(names, 0), town.logs()
        check_equal(town, plan, names=names, fed=fed)
        print(f"twenty peers: the simulator's models and bill, {time.monotonic() - begun:.0f} s")
