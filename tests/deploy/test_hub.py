"""A real hub and its clients end as the simulator does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coterie import METHODS, Federation, load
from coterie.channel import get_channel
from coterie.deploy.plan import Plan
from coterie.methods.star import StarMethod
from tests.support.hub_lab import NAMES, Lab, make_plan, wait_for


@pytest.mark.slow
def test_a_short_run_ends_as_the_simulator_does(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=3)
    l = hub_lab(plan)
    l.up()
    l.join()
    l.run(plan)
    for label in ("run", *NAMES):
        assert l.finish(label, 300) == 0, l.logs()
    l.assert_equal(plan)
    assert "finished." in l.said("run")
    status = l.status(plan)
    assert all(c["rejected"] == 0 and c["rounds"] == 3 and c["scores"] for c in status["clients"])
    assert (l.folder / "ward-a" / "fedu" / "models" / "personal.safetensors").is_file()


def star_plans(fed: Federation) -> list[Plan]:
    """Every method that a hub can run: with two of three clients a round, and some otherwise."""
    stars = sorted(name for name, kind in METHODS.items() if issubclass(kind, StarMethod))
    plans = [make_plan(fed, name, rounds=3, cohort=2) for name in (*stars, "fedu")]
    delta = get_channel("delta", {"share": 0.1})
    more = [
        make_plan(fed, "graph-proj", rounds=3),
        make_plan(fed, "fedu", "fedu-delta", rounds=10).with_(channel=delta),
        make_plan(fed, "fedavg", "fedavg-delta", rounds=10, cohort=2).with_(channel=delta),
        *(
            make_plan(fed, name, f"{name}-double", rounds=10, precision="float64")
            for name in ("fedu", "pfedme", "lp-proj-1", "ditto")
        ),
    ]
    return [*plans, *more]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, fed: Federation) -> Iterator[Lab]:
    """One federation for many plans."""
    l = Lab(tmp_path_factory.mktemp("busy"), fed, *star_plans(fed))
    try:
        l.up()
        l.join()
        yield l
    finally:
        l.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", [plan.name for plan in star_plans(load("digits", clients=3))])
def test_every_method_ends_as_the_simulator_does(busy: Lab, name: str) -> None:
    plan = next(p for p in busy.plans if p.name == name)
    busy.run(plan, plan.name)
    assert busy.finish(plan.name) == 0, busy.said(plan.name)
    busy.assert_equal(plan, exactly=name.startswith("fedu"))


@pytest.mark.slow
def test_a_graph_that_is_learnt(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    """The hub and a client are killed while the hub waits for the last client's sketch, and a
    client again in a round.
    """
    rule = {"name": "kin", "neighbours": 1, "after": 3, "every": 20}
    plan = make_plan(fed, "fedu", rounds=60).with_(graph={"kind": "learn", "rule": rule})
    l = hub_lab(plan)
    l.up()
    l.join("ward-a", "ward-b")
    l.run(plan)
    answered = l.folder / "ward-b" / plan.name / "client.safetensors"
    wait_for(answered.is_file)
    l.kill("run", "ward-b")
    assert not (l.folder / "hub" / plan.name / "status.json").exists()
    l.join("ward-b", "ward-c")
    l.run(plan, "again")
    wait_for(lambda: l.round(plan) >= 22 or l.processes["again"].poll() is not None)
    l.kill("ward-a")
    l.join("ward-a")
    assert l.finish("again") == 0, l.logs()
    l.assert_equal(plan)
    assert "the sketches before round 3: 3 clients; 768 bytes up" in l.said("again")
