"""A real hub and its clients in states in which nothing goes on: each is noticed within 15 s, said
by everybody, and healed by what is said.

    COTERIE_FAULTS=faults.md pytest -m slow tests/deploy/test_hub_stuck.py

writes the rows of the table in docs/deploy-hub.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie import Federation
from coterie.deploy.keys import authority as keys
from coterie.deploy.plan import Plan, Rules
from tests.support.hub_lab import Lab, lab_of, running, started, wait_for
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow
SOON = 15.0


class Watch:
    """How long it took until a process said something new."""

    def __init__(self, l: Lab, *labels: str) -> None:
        self.l, self.begun = l, time.monotonic()
        self.before = {label: len(l.said(label)) for label in labels}

    def until(self, label: str, words: str, seconds: float = 240.0) -> float:
        wait_for(lambda: words in self.l.said(label)[self.before[label] :], seconds)
        return time.monotonic() - self.begun


def noted(fault: str, outcome: str, seconds: float) -> None:
    if path := os.environ.get("COTERIE_FAULTS"):
        with Path(path).open("a") as f:
            f.write(f"| {fault} | {outcome} | {seconds:.0f} |\n")


def ended(l: Lab, label: str = "run") -> bool:
    return l.processes[label].poll() is not None


def after(l: Lab, plan: Plan, rounds: int, label: str = "run") -> None:
    """So many rounds on."""
    until = l.round(plan) + rounds
    wait_for(lambda: l.round(plan) >= until or ended(l, label), 300)


def test_what_stops_a_run_is_said_by_everybody_and_the_run_is_exact(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """A second hub, a client that is stopped, a line that swallows, a gate that is gone."""
    l, plan = lab_of(hub_lab, fed, rounds=400, eval_every=1000)
    cut = Proxy(l.port)
    site = l.site("ward-b", plan)
    site.write_text(site.read_text().replace(str(l.port), str(cut.port)))
    started(l, plan)
    watch = Watch(l, "run", "ward-a")
    l.kill("ward-c", sign=signal.SIGSTOP)
    hub = watch.until("run", "waiting for ward-c")
    client = watch.until("ward-a", "waiting for the hub since")
    assert max(hub, client) < SOON
    facts = (l.folder / "hub" / "hub.json").read_text()
    begun, gate = time.monotonic(), ("--keys", l.folder / "keys", "--port", l.port + 1)
    l.start("second", "hub", "up", "--folder", l.folder / "hub", *map(str, gate))
    assert l.finish("second", 120) == 2
    pid = l.processes["up"].pid
    assert f"pid {pid}, since" in l.said("second")
    assert f"stop it: `kill {pid}`" in l.said("second")
    assert (l.folder / "hub" / "hub.json").read_text() == facts
    noted(
        "a second `hub up` in the folder",
        "refused: who holds it, and `kill PID`; first unharmed",
        time.monotonic() - begun,
    )
    l.run(plan, "second run")
    assert l.finish("second run", 120) == 2
    assert f"pid {l.processes['run'].pid}, since" in l.said("second run")

    l.kill("ward-c", sign=signal.SIGCONT)
    after(l, plan, 2)
    noted(
        "SIGSTOP of a client",
        "hub and clients say for whom they wait; goes on, exact",
        max(hub, client),
    )

    watch = Watch(l, "run", "ward-b")
    cut.swallows = True
    hub, client = watch.until("run", "ward-b is gone"), watch.until("ward-b", "cannot be reached")
    assert max(hub, client) < SOON
    cut.swallows = False
    back = Watch(l, "ward-b")
    back.until("ward-b", "connected again")
    after(l, plan, 2)
    noted("a line that swallows bytes while TCP stays", "both ends say so", max(hub, client))
    noted("the same line, healed", "connected again; exact", time.monotonic() - back.begun)

    watch = Watch(l, "run", "ward-a", "ward-b", "ward-c")
    l.kill("up")
    gone = [watch.until("run", "the gate is gone")]
    gone += [watch.until(name, "cannot be reached") for name in l.names]
    assert max(gone) < SOON
    noted("SIGKILL of `hub up`", "everybody says so and waits; `hub up` again: exact", max(gone))
    l.up()
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan)
    cut.close()


def test_a_client_whose_folder_is_lost_stops_and_comes_back_as_it_is_told(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = running(hub_lab, fed, rounds=100, eval_every=1000)
    state, away, old = (l.folder / "ward-b" / name for name in (plan.name, "away", "old"))
    l.kill("ward-b")
    shutil.copytree(state, old)
    l.join("ward-b")
    after(l, plan, 2)
    l.kill("ward-b")
    state.rename(away)
    for what, copy in (("is lost", None), ("is an older copy", old)):
        if copy is not None:
            shutil.rmtree(state)
            shutil.copytree(copy, state)
        watch = Watch(l, "run", "ward-b")
        l.join("ward-b")
        assert l.finish("ward-b", 240) == 2, l.logs()
        took = watch.until("ward-b", "--newcomer")
        watch.until("run", "ward-b cannot answer: the hub has had round")
        noted(
            f'a client\'s folder {what} ("wait")', "it stops with a sentence; the hub says so", took
        )
    shutil.rmtree(state)
    away.rename(state)
    l.join("ward-b")  # as it was: nothing is lost
    after(l, plan, 2)
    l.kill("ward-b")
    shutil.rmtree(state)
    watch = Watch(l, "run")
    l.start("ward-b", "client", "join", "--newcomer", l.folder / "ward-b" / f"{plan.name}.toml")
    noted(
        "the same, `client join --newcomer`",
        "goes on, said not to be exact any more",
        watch.until("run", "goes on as a newcomer"),
    )
    assert l.finish() == 0, l.logs()


def test_a_hub_that_was_put_back_says_what_heals_it(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = running(hub_lab, fed, rounds=60, eval_every=1000)
    l.kill("run")
    hub, copy = l.folder / "hub" / plan.name, l.folder / "copy"
    shutil.copytree(hub, copy)
    l.run(plan, "on")
    after(l, plan, 3, "on")
    l.kill("on")
    shutil.rmtree(hub)
    shutil.copytree(copy, hub)
    begun = time.monotonic()
    l.run(plan, "old")
    assert l.finish("old", 240) == 2, l.logs()
    assert f"coterie hub go-back PLAN --folder {l.folder / 'hub'}" in l.said("old")
    noted(
        "a hub's folder put back from an older copy",
        "it stops and names `hub go-back`",
        time.monotonic() - begun,
    )
    file = l.folder / f"{plan.name}.toml"
    l.start("back", "hub", "go-back", file, "--folder", l.folder / "hub")
    assert l.finish("back", 240) == 0, l.logs()
    l.run(plan, "healed")
    assert l.finish("healed") == 0, l.logs()
    assert all(l.finish(name, 120) == 0 for name in l.names), l.logs()
    assert "was set back from round" in l.said("ward-a")


def test_a_client_that_never_comes_back_is_left_out_by_the_command_that_is_named(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = running(hub_lab, fed, rounds=20, rules=Rules(give_up=20.0))
    l.kill("ward-c")
    begun = time.monotonic()
    assert l.finish() == 4, l.logs()
    assert "coterie keys revoke KEYS ward-c" in l.said("run")
    noted(
        'a client that never comes back ("wait", `give_up` 20 s)',
        "stops, and names `keys revoke`",
        time.monotonic() - begun,
    )
    keys.revoke(l.folder / "keys", "ward-c")
    l.run(plan, "without")
    assert l.finish("without") == 0, l.logs()
    assert l.status(plan)["clients"][0]["rounds"] == 20
    assert l.status(plan)["clients"][2]["rounds"] < 20
