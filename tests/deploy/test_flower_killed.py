"""Real federations over Flower: they end as the simulator does, whoever is killed on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie import Federation, load
from coterie.deploy.plan import Rules
from tests.support.flower_lab import Lab, descendants, make_plan, started, wait_for

httpx = pytest.importorskip("httpx")
pytest.importorskip("flwr")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.mark.parametrize("clients", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_short_run_ends_as_the_simulator_does(lab: Callable[..., Lab], clients: int) -> None:
    fed = load("digits", clients=clients)
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan, fed=fed)
    l.up()
    l.join()
    l.run(plan)
    assert l.finish() == 0, l.said("run") + l.said("up")
    l.assert_equal(plan)
    assert "finished" in l.said("run")
    status = l.status(plan)
    assert all(c["rejected"] == 0 and c["rounds"] == 2 and c["scores"] for c in status["clients"])
    assert (l.folder / "ward-a" / "fedu" / "models" / "personal.safetensors").is_file()
    # The port that clients call shows nothing but what signed requests of nodes may use.
    with httpx.Client(
        verify=ssl.create_default_context(cafile=str(l.folder / "keys" / "ca.pem")), trust_env=False
    ) as web:
        assert web.post(f"https://127.0.0.1:{l.port}/v1/control/list-nodes").status_code == 404
        assert web.post(f"https://127.0.0.1:{l.port}/v1/runtime/acquire-task").status_code == 404
        assert (
            web.post(f"https://127.0.0.1:{l.port}/v1/fleet/../control/list-nodes").status_code
            == 404
        )
        assert web.post(f"https://127.0.0.1:{l.port}/v1/fleet/pull-messages").status_code >= 400


@pytest.mark.slow
def test_a_graph_that_is_learnt(lab: Callable[..., Lab], fed: Federation) -> None:
    """With a client that is killed when it is asked for its first sketch, before which it trains
    alone.
    """
    rule = {"name": "kin", "neighbours": 1, "after": 3, "every": 2}
    plan = make_plan(fed, "fedu", rounds=6).with_(graph={"kind": "learn", "rule": rule})
    l = lab(plan)
    l.up()
    l.join()
    l.run(plan)
    wait_for(lambda: l.asks(plan) or l.processes["run"].poll() is not None, 500)
    assert not l.round(plan), "the sketches are there already"
    os.killpg(l.processes["ward-b"].pid, signal.SIGKILL)
    l.join("ward-b")
    assert l.finish() == 0, l.said("run") + l.said("up")
    l.assert_equal(plan)
    assert "the sketches before round 3: 3 clients; 768 bytes up" in l.said("run")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, fed: Federation) -> Iterator[Lab]:
    """One federation for many plans."""
    plans = [
        make_plan(fed, method, f"{method}-{precision}", rounds=10, precision=precision)
        for method in ("fedu", "pfedme", "lp-proj-1", "ditto")
        for precision in ("float32", "float64")
    ]
    l = Lab(tmp_path_factory.mktemp("busy"), fed, *plans)
    try:
        l.up()
        l.join()
        yield l
    finally:
        l.stop()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("method", ["fedu", "pfedme", "lp-proj-1", "ditto"])
def test_ten_rounds_end_as_the_simulator_does(busy: Lab, method: str, precision: str) -> None:
    plan = next(p for p in busy.plans if p.name == f"{method}-{precision}")
    busy.run(plan, plan.name)
    assert busy.finish(plan.name) == 0, busy.said(plan.name)
    busy.assert_equal(plan)


@pytest.mark.slow
def test_a_killed_client_comes_back(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "lp-proj-1", rounds=8)
    l = lab(plan)
    started(l, plan)
    for pid in [*descendants(l.processes["ward-b"].pid)]:
        os.kill(pid, signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "killed by signal 9" in l.said("ward-b")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_worker_that_dies_at_work_is_started_again(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "pfedme", rounds=3)
    l = lab(plan)
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, ["die"])
    l.run(plan)
    assert l.finish() == 0, l.said("run")
    assert "the worker ended with code 9" in l.said("ward-c")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_client_killed_with_its_supervisor_comes_back_when_started_again(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    children = descendants(l.processes["ward-b"].pid)
    l.processes["ward-b"].kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 20)
    l.join("ward-b")
    assert l.finish() == 0, l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_killed_superlink_is_started_again(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "ditto", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.child("up", "flower-superlink"), signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "killed by signal 9" in l.said("up")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_that_is_killed_whole_resumes(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "pfedme", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.serverapp(plan), signal.SIGKILL)
    for label in ("run", "up"):
        for pid in [l.processes[label].pid, *descendants(l.processes[label].pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        l.processes[label].wait()
    l.up()
    wait_for(lambda: l.said("up").count("the hub is up") == 2)
    l.run(plan, "again")
    assert l.finish("again") == 0, l.said("again")
    assert "going on from round" in l.log(plan)
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_that_comes_back_elsewhere_is_found_by_its_run(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    """`hub up` dies with all it started, and is started again; `hub run` was there all the time."""
    plan = make_plan(fed, "fedu", rounds=6)
    l = lab(plan)
    started(l, plan)
    for pid in [l.processes["up"].pid, *descendants(l.processes["up"].pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    l.up()
    assert l.finish() == 0, l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_killed_serverapp_is_started_again(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.serverapp(plan), signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "starting it again" in l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_stopped_client_is_waited_for(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=8, rules=Rules(patience=10.0, give_up=800.0))
    l = lab(plan)
    started(l, plan)
    pids = [*descendants(l.processes["ward-c"].pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(30)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert l.finish() == 0, l.said("run")
    assert "still waiting for ward-c" in l.log(plan)
    l.assert_equal(plan)
