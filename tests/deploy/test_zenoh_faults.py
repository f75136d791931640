"""Real peers over Zenoh: killed, stopped, silent, strangers, revoked, lying."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.deploy.keys import authority as keys
from coterie.deploy.messages import WIRE
from coterie.deploy.plan import Plan
from coterie.deploy.ports import free_ports
from coterie.deploy.zenoh.net import Address, Net, packed
from tests.support.peering import NAMES, Town, make_plan, peer_town, the_digits
from tests.support.town_checks import ENDLESS, GO_ON, WELL, check_equal


def at_round(town: Town, name: str, t: int) -> None:
    town.until(lambda: town.status(name)["round"] >= t, f"round {t} of {name}")


@pytest.mark.slow
@pytest.mark.parametrize("victims", [("p1",), ("p0", "p3")])
def test_killed_and_restarted_with_wait(tmp_path: Path, victims: tuple[str, ...]) -> None:
    """Bit for bit as if nothing had happened."""
    plan = make_plan(the_digits(), rounds=300, eval_every=100)
    with peer_town(tmp_path / "killed", plan) as town:
        town.start(*NAMES)
        at_round(town, victims[0], 20)
        town.kill(*victims)
        time.sleep(1.5)
        town.start(*victims)
        assert town.wait() == WELL, town.logs()
        disturbed = {name: town.model(name) for name in NAMES}
        check_equal(town, plan, 1e-4)
    with peer_town(tmp_path / "left alone", plan) as town:
        town.start(*NAMES)
        assert town.wait() == WELL, town.logs()
        for name in NAMES:
            for part, value in town.model(name).items():
                np.testing.assert_array_equal(value, disturbed[name][part])


@pytest.mark.slow
def test_stopped_for_30_seconds_with_wait(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), rounds=300, eval_every=1000)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 20)
        town.signal("p2", signal.SIGSTOP)
        time.sleep(30)
        assert all(process.poll() is None for process in town.running.values()), town.logs()
        town.signal("p2", signal.SIGCONT)
        assert town.wait(seconds=600) == WELL, town.logs()
        check_equal(town, plan, 1e-4)


def back_again(town: Town, since: int) -> bool:
    """p2 has jumped, and all have mixed with it and each other for a while."""
    near = [n for name in NAMES for n in town.status(name).get("neighbours", [])]
    return "p2: round" in town.log("p2") and all(
        n["active"] and n["rejected"] == 0 and n["round"] > since + 20 for n in near
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped for 30 seconds", "killed and restarted"])
def test_go_on_with_one_that_comes_back(tmp_path: Path, how: str) -> None:
    """Its edges are dropped, the others go on, it jumps to a round that all agree on, and all edges
    count again.
    """
    plan = make_plan(the_digits(), rounds=ENDLESS, eval_every=ENDLESS, rules=GO_ON)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 20)
        town.signal("p2", signal.SIGSTOP) if "stopped" in how else town.kill("p2")
        began = time.monotonic()
        town.until(
            lambda: all("its edge is dropped" in town.log(name) for name in ("p1", "p3")),
            "the edges are dropped",
        )
        time.sleep(max(0.0, began + 30 - time.monotonic()) if "stopped" in how else 1.0)
        since = town.status("p1")["round"]
        town.signal("p2", signal.SIGCONT) if "stopped" in how else town.start("p2")
        town.until(lambda: back_again(town, since), "all edges count again", 300)
        assert "going on with" in town.log("p2"), town.logs()


@pytest.mark.slow
def test_go_on_with_one_that_never_comes_back(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), rounds=300, eval_every=1000, rules=GO_ON)
    others = [name for name in NAMES if name != "p2"]
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 10)
        town.kill("p2")
        assert town.wait(*others) == dict.fromkeys(others, 0), town.logs()
        for name in ("p1", "p3"):
            assert not next(n for n in town.status(name)["neighbours"] if n["name"] == "p2")[
                "active"
            ]
        check = [n["active"] for name in ("p0", "p4") for n in town.status(name)["neighbours"]]
        assert all(check)


@pytest.mark.slow
def test_wait_gives_up(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), rounds=3000, rules={"give_up": 8.0})
    with peer_town(tmp_path, plan) as town:
        town.start("p0", "p1")
        assert town.wait() == {"p0": 4, "p1": 4}, town.logs()
        assert "and the plan says to wait" in town.log("p0")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "an older copy"])
def test_a_folder_that_is_not_what_it_was_with_wait(tmp_path: Path, how: str) -> None:
    """A peer that knows less than it said would say other things: it stops."""
    plan = make_plan(the_digits(), rounds=3000, rules={"give_up": 20.0})
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 20)
        town.kill("p2")
        if how == "an older copy":
            shutil.copytree(town.state("p2"), tmp_path / "older")
            town.start("p2")
            at_round(town, "p2", 60)
            town.kill("p2")
        shutil.rmtree(town.state("p2"))
        if how == "an older copy":
            shutil.copytree(tmp_path / "older", town.state("p2"))
        town.start("p2")
        assert town.wait("p2") == {"p2": 2}, town.logs()
        assert "folder was lost or replaced" in town.log("p2")
        assert set(town.wait().values()) == {2, 4}, town.logs()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unknown CA", "trusted outsider"])
def test_strangers(tmp_path: Path, kind: str) -> None:
    """Neither sees nor hears anything, and nobody hears of it."""
    plan = make_plan(the_digits(), rounds=200, eval_every=100)
    with peer_town(tmp_path, plan) as town:
        if kind == "unknown CA":
            keys.init(tmp_path / "other", "town")
            identity = keys.NodeIdentity.load(keys.issue(tmp_path / "other", "p4"))
        else:
            identity = keys.NodeIdentity.load(keys.issue(town.keys, "stranger"))
        place = Address(
            plan.name,
            identity.name,
            "",
            {name: town.endpoint(name) for name in NAMES if name != identity.name},
            identity,
        )
        town.start(*NAMES[:4])
        with Net(place, 1 << 20) as net:
            for name in NAMES[:4]:
                town.until(lambda name=name: "round 0 of" in town.log(name), f"{name} is up")
            time.sleep(3)
            for name in place.neighbours:
                net.send(name, {"round": 0}, b"x" * 2600)
                net.ask(name, "?", packed("{}", ()), 2.0)
            events = [event for _ in range(40) if (event := net.next(0.1)) is not None]
            assert all(
                getattr(event, "payload", None) is None and not getattr(event, "alive", False)
                for event in events
            ), events
            town.start("p4")
            assert town.wait() == WELL, town.logs()
        check_equal(town, plan, 1e-4)
        assert all(n["rejected"] == 0 for name in NAMES for n in town.status(name)["neighbours"])


@pytest.mark.slow
def test_expired_certificates(tmp_path: Path) -> None:
    """One that is expired at the start is refused by its own process; one that expires during the
    run stops it.
    """
    plan = make_plan(the_digits(), rounds=100000, rules={"give_up": 6.0}, eval_every=100000)
    keys.init(tmp_path / "clock", "town")
    soon = datetime.now(UTC) - timedelta(days=1) + timedelta(seconds=45)
    with peer_town(tmp_path / "t", plan) as town:
        old = keys.issue(
            town.keys, "p2", days=1, renew=True, now=datetime.now(UTC) - timedelta(days=2)
        )
        assert old.exists()
        keys.issue(town.keys, "p4", days=1, renew=True, now=soon)
        town.start("p2")
        assert town.wait("p2") == {"p2": 2}
        assert "expired on" in town.log("p2")
        keys.issue(town.keys, "p2", renew=True)
        town.start(*NAMES)
        codes = town.wait()
        assert codes["p4"] == 2, town.logs()
        assert "expired on" in town.log("p4")
        assert set(codes.values()) == {2, 4}, town.logs()
        assert "and the plan says to wait" in town.log("p0")


@pytest.mark.slow
def test_revoked(tmp_path: Path) -> None:
    plan = make_plan(the_digits(), rounds=400, eval_every=1000)
    others = [name for name in NAMES if name != "p2"]
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 20)
        old = (town.keys / "nodes" / "p2" / "crl.pem").read_bytes()
        # A thief does not read the list: it sleeps while its copy is new.
        town.signal("p2", signal.SIGSTOP)
        keys.revoke(town.keys, "p2", "key-compromise")
        (town.keys / "nodes" / "p2" / "crl.pem").write_bytes(old)
        town.signal("p2", signal.SIGCONT)
        assert town.wait(*others) == dict.fromkeys(others, 0), town.logs()
        assert "p2 is revoked" in town.log("p1")
        assert "p2 is revoked" in town.log("p3")
        assert town.running["p2"].poll() is None  # it waits, for nobody
        last = town.status("p2")["round"]
        assert 20 <= last < 400
        town.kill("p2")
        keys.revoke(town.keys, "p2", "key-compromise")
        town.start("p2")
        assert town.wait("p2") == {"p2": 2}
        assert "is revoked" in town.log("p2")


def with_bad_peer(
    tmp_path: Path, rules: dict[str, Any], act: Callable[[Town, Net, Plan], None], rounds: int = 300
) -> Town:
    """p2 has keys, but its process is the test's."""
    plan = make_plan(the_digits(), rounds=rounds, eval_every=1000, rules=rules | {"give_up": 30.0})
    others = [name for name in NAMES if name != "p2"]
    with peer_town(tmp_path, plan) as town:
        identity = keys.NodeIdentity.load(town.keys / "nodes" / "p2")
        with Net(
            Address(
                plan.name,
                "p2",
                town.endpoint("p2"),
                {n: town.endpoint(n) for n in ("p1", "p3")},
                identity,
            ),
            1 << 20,
        ) as net:
            town.start(*others)
            town.until(
                lambda: all("p2 is there" in town.log(name) for name in ("p1", "p3")), "p2 is seen"
            )
            act(town, net, plan)
            assert town.wait(*others, seconds=600) == dict.fromkeys(others, 0), town.logs()
        return town


def position(plan: Plan, t: int, weight: float) -> dict[str, Any]:
    return {
        "wire": WIRE,
        "plan": plan.fingerprint,
        "number": 2,
        "weight": weight,
        "round": t,
        "oldest": t,
        "counts": True,
        "entry": -1,
    }


@pytest.mark.slow
def test_bad_messages(tmp_path: Path) -> None:
    """NaN, garbage, 100 times the size, another round, another plan: rejected, counted and told of,
    and the others go on.
    """
    size = 650 * 4

    def act(town: Town, net: Net, plan: Plan) -> None:
        nan = np.full(650, np.nan, np.float32).tobytes()
        good = position(plan, 0, 0.5)
        for facts, payload in (
            (good, nan),
            (good, b"garbage"),
            (good, b"x" * (100 * size)),
            (good | {"round": 400}, b"x" * size),
            (good | {"plan": "0" * 32}, b"x" * size),
            (good | {"weight": 3.0}, b"x" * size),
            ({"round": "x"}, b"x" * size),
        ):
            net.send("p1", facts, payload)
        net.ask("p1", "?", b"garbage", 5.0)
        net.ask("p1", "?", packed(json.dumps({"position": good, "enter": "x"}), ()), 5.0)
        net.ask("p1", "?", packed(json.dumps({"position": good, "enter": 10**9}), ()), 5.0)

    town = with_bad_peer(tmp_path, GO_ON, act)
    rejected = next(n for n in town.status("p1")["neighbours"] if n["name"] == "p2")["rejected"]
    assert rejected >= 9, town.logs()
    for words in (
        "NaN or infinity",
        "bytes, but must have",
        "the plan has 300",
        "another plan",
        "the weight 3.0",
        "is no round",
    ):
        assert words in town.log("p1"), (words, town.log("p1"))
    assert all(n["rejected"] == 0 for name in ("p0", "p4") for n in town.status(name)["neighbours"])


@pytest.mark.slow
def test_replayed_and_forged(tmp_path: Path) -> None:
    """An old message is no news; one under another's key does not arrive; two different ones for
    one round: the first counts.
    """

    def act(town: Town, net: Net, plan: Plan) -> None:
        import zenoh

        zero = np.zeros(650, np.float32).tobytes()
        net.send("p1", position(plan, 0, 0.5), zero)
        net.send("p1", position(plan, 0, 0.5), zero)  # the same again
        net.send(
            "p1", position(plan, 0, 0.5), np.ones(650, np.float32).tobytes()
        )  # another process with this identity
        forged = net._session.declare_publisher(
            net.address.key("p3", "to", "p1"), congestion_control=zenoh.CongestionControl.BLOCK
        )
        forged.put(zero, attachment=json.dumps(position(plan, 0, 0.7) | {"number": 3}))
        town.until(lambda: town.status("p1")["round"] > 20, "round 20")
        net.send("p1", position(plan, 0, 0.5), zero)  # long ago

    town = with_bad_peer(tmp_path, GO_ON, act)
    log = town.log("p1")
    assert "do two processes have this identity?" in log
    counts = {n["name"]: n["rejected"] for n in town.status("p1")["neighbours"]}
    assert counts["p2"] == 1, log
    assert counts["p3"] == 0, log


@pytest.mark.slow
def test_two_processes_with_one_identity(tmp_path: Path) -> None:
    """In one folder the second refuses to start; with another folder its messages are rejected, and
    the run is not harmed.
    """
    plan = make_plan(the_digits(), rounds=ENDLESS, eval_every=ENDLESS)
    with peer_town(tmp_path, plan) as town:
        town.start(*NAMES)
        at_round(town, "p2", 20)
        first = town.running["p2"]
        town.start("p2")
        assert town.wait("p2") == {"p2": 2}
        assert "another process is working on the folder" in town.log("p2")
        twin = town.config("p2").read_text().replace('folder = "state"', 'folder = "elsewhere"')
        twin = twin.replace(town.endpoint("p2"), f"tls/127.0.0.1:{free_ports(1)[0]}")
        (tmp_path / "p2" / "twin.toml").write_text(twin)
        town.start("p2", config=tmp_path / "p2" / "twin.toml")
        assert town.wait("p2", seconds=480) == {"p2": 2}, town.logs()
        assert "folder was lost or replaced" in town.log("p2")
        town.running["p2"] = first
        since = town.status("p1")["round"]
        at_round(town, "p1", since + 50)
        assert all(process.poll() is None for process in town.running.values()), town.logs()
