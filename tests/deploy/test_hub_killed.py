"""A real hub and its clients: killed, stopped, started again, late."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable

import pytest

from coterie import Federation
from coterie.deploy.plan import Rules
from tests.support.hub_lab import Lab, lab_of, make_plan, running, wait_for

pytestmark = pytest.mark.slow


def test_killed_clients_come_back(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    """One in a round, one with its message in hands."""
    l, plan = lab_of(hub_lab, fed, rounds=60)
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, ["die"])
    l.run(plan)
    assert l.finish("ward-c", 300) == 9, l.logs()
    l.join("ward-c")
    wait_for(lambda: l.round(plan) >= 20 or l.processes["run"].poll() is not None)
    l.kill("ward-b")
    l.join("ward-b")
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan)


def test_a_killed_gate_is_started_again(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    l, plan = running(hub_lab, fed, rounds=60)
    l.kill("up")
    wait_for(
        lambda: "the gate is gone" in l.said("run") and "cannot be reached" in l.said("ward-a")
    )
    l.up()
    assert l.finish() == 0, l.logs()
    assert "the gate is there again" in l.said("run")
    l.assert_equal(plan)


def test_a_hub_that_is_killed_whole_resumes(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    """What runs the plan, and then the gate with it."""
    l, plan = running(hub_lab, fed, rounds=60)
    l.kill("run")
    l.run(plan, "again")
    wait_for(lambda: l.round(plan) >= 20 or l.processes["again"].poll() is not None)
    l.kill("again", "up")
    l.up()
    l.run(plan, "at last")
    assert l.finish("at last") == 0, l.logs()
    assert "going on from round" in l.said("at last")
    l.assert_equal(plan)


def test_a_stopped_client_is_waited_for(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    """Longer than Zenoh's lease: its link is gone when it wakes up."""
    l, plan = running(hub_lab, fed, rounds=60)
    l.kill("ward-c", sign=signal.SIGSTOP)
    wait_for(lambda: "ward-c is gone" in l.said("run"))
    l.kill("ward-c", sign=signal.SIGCONT)
    assert l.finish() == 0, l.logs()
    assert "waiting for ward-c" in l.said("run")
    l.assert_equal(plan)


def test_it_goes_on_without_a_client_where_the_plan_says_so_and_gives_up_where_it_does_not(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """One that never comes, and comes at last; one that leaves; one that joins late."""
    go_on = Rules(on_missing="go-on", patience=2.0, give_up=300.0)
    on = make_plan(fed, "pfedme", "on", rounds=50, rules=go_on)
    off = make_plan(fed, "fedu", "off", rounds=2, rules=Rules(give_up=20.0))
    l = hub_lab(on, off)
    l.up()
    l.join("ward-a", "ward-b")
    l.run(off)
    assert l.finish() == 4, l.logs()
    assert "no usable answer from ward-c (not connected) for 20 s" in l.said("run")
    l.run(on, "on")
    wait_for(lambda: "without ward-c" in l.said("on"), 300)
    l.join("ward-c")
    wait_for(lambda: {"on: the hub is there"} & set(l.said("ward-c").split(".\n")), 300)
    wait_for(lambda: l.status(on)["clients"][2]["rounds"] > 0 or l.processes["on"].poll() == 0, 300)
    l.kill("ward-b", sign=signal.SIGTERM)
    assert l.finish("ward-b", 60) == 0, l.logs()
    assert l.finish("on") == 0, l.logs()
    rounds = [c["rounds"] for c in l.status(on)["clients"]]
    assert rounds[0] == 50
    assert 0 < rounds[2] < 50, l.logs()
    assert 0 < rounds[1] < 50, l.logs()
    l.join("ward-b")
    l.run(off, "off again")
    assert l.finish("off again") == 0, l.logs()
    l.assert_equal(off)


def test_a_client_whose_folder_is_lost_begins_anew(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """It keeps nothing of its own, so that nothing is lost."""
    l, plan = running(hub_lab, fed, "fedavg", rounds=40)
    l.kill("ward-b")
    shutil.rmtree(l.folder / "ward-b" / plan.name)
    l.join("ward-b")
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan, exactly=False)
