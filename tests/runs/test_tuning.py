"""Tuning in memory: equal budgets, validation data only, failures that stay single."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coterie
from coterie import Federation, InvalidInput, Local, PFedMe
from coterie.data.federation import Split
from coterie.methods import METHODS
from coterie.runs.experiment import Experiment
from coterie.runs.tuning.batch import TuningProblem
from coterie.runs.tuning.options import Tuning
from coterie.runs.tuning.spaces import grid_points
from coterie.runs.tuning.tune import Clock, tune_methods

TRAINING: dict[str, Any] = {"rounds": 4, "eval_every": 2, "batch_size": 4, "keep": "best"}
STEPS = 4 * 2
"""Gradient steps per client of one run below."""


def federation(seed: int = 0) -> Federation:
    return coterie.load("digits", clients=3, validation=0.3, seed=seed)


@pytest.fixture(scope="module")
def found() -> list[Any]:
    """Local, and pFedMe, which takes twice as many steps a round, with the same budget."""
    return tune_methods(
        federation(),
        [Local(local_steps=2), PFedMe(local_rounds=2, inner_steps=2)],
        training=TRAINING,
        steps=6 * STEPS,
        width=2,
        prune=False,
    )


def test_every_method_has_a_search_space_within_what_is_allowed() -> None:
    from coterie.core.declared import check_search

    for name, cls in METHODS.items():
        searched = {k: d for k, d in cls.public().items() if d.search is not None}
        assert any(d.traced for d in searched.values()), name
        for d in searched.values():
            check_search(name, d, d.search)  # type: ignore[arg-type]


def test_no_method_has_more_trials_than_are_allowed() -> None:
    """Also where its steps, or minutes, would pay for more."""
    given: dict[str, Any] = {"training": TRAINING, "width": 2, "trials": 3, "prune": False}
    for budget in ({"steps": 20 * STEPS}, {"minutes": 5.0}):
        (tuned,) = tune_methods(federation(), [Local(local_steps=2)], **given, **budget)
        assert [t.state for t in tuned.trials] == ["complete"] * 3
        assert tuned.steps == 3 * STEPS


def test_every_method_gets_the_same_gradient_steps(found: list[Any]) -> None:
    assert [t.label for t in found] == ["local", "pfedme"]
    assert [t.steps for t in found] == [6 * STEPS] * 2
    ended = [[trial for trial in t.trials if trial.state == "complete"] for t in found]
    assert [len(trials) for trials in ended] == [6, 3]  # those that fail beforehand cost nothing
    for tuned in found:
        # Counted from the ledger: a run by itself takes the steps that its trial was billed.
        best = tuned.best
        alone = coterie.simulate(tuned.method, federation(), **{**TRAINING, "seed": 1000})
        assert alone.ledger.gradients / 3 == best.steps
        validated = float(np.nanmean(alone.client_scores("validation")))
        assert validated == pytest.approx(tuned.score, abs=1e-5)
        assert alone.kept == tuned.rounds[0]
        np.testing.assert_allclose(tuned.clients, alone.client_scores("validation"), atol=1e-5)


def test_what_was_given_is_tried_first_and_the_best_is_chosen(found: list[Any]) -> None:
    for tuned in found:
        given = {name: getattr(tuned.given.method, name) for name in tuned.spaces}
        assert tuned.trials[0].params == given
        assert tuned.score == max(t.score for t in tuned.trials if t.state == "complete")
        assert tuned.given_score == tuned.trials[0].score
        assert {k: getattr(tuned.method, k) for k in tuned.params} == tuned.params


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20), size=st.integers(0, 40))
def test_test_rows_are_never_read(seed: int, size: int) -> None:
    fed, rng = federation(), np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, size + 1, 2))
    garbage = Split(
        rng.normal(0, 1e6, (size, *fed.input_shape)).astype(np.float32),
        rng.integers(0, fed.classes, size),
        np.array([0, *cuts, size], np.int64),
    )
    options: dict[str, Any] = {"training": TRAINING, "steps": 2 * STEPS, "width": 2}
    contenders = [Local(local_steps=2)]
    with_theirs = tune_methods(fed, contenders, **options)
    with_garbage = tune_methods(dataclasses.replace(fed, test=garbage), contenders, **options)
    plain = lambda tuned: [dataclasses.replace(t, seconds=0.0) for t in tuned[0].trials]
    assert plain(with_theirs) == plain(with_garbage)


def test_trials_cannot_be_made_on_test_rows() -> None:
    with pytest.raises(InvalidInput, match=r"has .* test rows, but tuning must not have any"):
        TuningProblem((federation(),), "mlr", None, {}, (0,))
    without = coterie.load("digits", clients=3, validation=0.0)
    with pytest.raises(InvalidInput, match="no validation data to tune on"):
        tune_methods(without, ["local"])


def quadratic(curvature: float) -> Federation:
    """f_k(x) = (b/2)‖x − x_k‖², with the same rows for training and validation."""
    made = coterie.load("linear", clients=2, dimension=3, samples=6, noise=0, scale=curvature,
                        scale_last=curvature)  # fmt: skip
    return dataclasses.replace(made, validation=made.train)


def test_the_best_step_size_of_a_quadratic_is_found() -> None:
    """From 0, one step of size μ leaves (1 − μ b)² of the error, so μ = 1/b is best."""
    options: dict[str, Any] = {"rounds": 1, "eval_every": 1, "sampling": "full"}
    (tuned,) = tune_methods(
        quadratic(4.0), [Local(local_steps=1)], model="linear", training=options, steps=40, width=4,
        prune=False,
    )  # fmt: skip
    assert len(tuned.trials) == 40
    assert tuned.params["lr"] == pytest.approx(1 / 4, rel=0.1)
    (grid,) = tune_methods(
        quadratic(4.0), [Local(local_steps=1)], model="linear", training=options, sampler="grid",
        search={"local": {"lr": [0.1, 0.2, 0.25, 0.4]}}, width=4,
    )  # fmt: skip
    assert [t.params["lr"] for t in grid.trials] == [0.1, 0.2, 0.25, 0.4]
    assert grid.params == {"lr": 0.25}
    assert grid.score == pytest.approx(0, abs=1e-9)


def test_a_trial_that_diverges_fails_alone() -> None:
    options: dict[str, Any] = {"rounds": 30, "eval_every": 30, "sampling": "full"}
    (tuned,) = tune_methods(
        quadratic(1.0), [Local(local_steps=9)], model="linear", training=options, sampler="grid",
        search={"local": {"lr": [100.0, 0.5]}}, width=4,
    )  # fmt: skip
    wrong, right = tuned.trials
    assert (wrong.state, right.state) == ("failed", "complete")
    assert "diverged in round" in wrong.reason
    assert tuned.params == {"lr": 0.5}


def test_a_space_without_a_stable_value_ends_with_a_sentence() -> None:
    """Every trial breaks the condition of FedU's mixing step, and costs nothing."""
    with pytest.raises(InvalidInput, match=r"no trial gave a score, .* a step-size condition"):
        tune_methods(
            federation(),
            [coterie.FedU(local_steps=2)],
            training=TRAINING,
            search={"fedu": {"eta": {"low": 500.0, "high": 1000.0}}},
            steps=STEPS,
            width=2,
            local=False,
        )


def test_the_worse_half_is_dropped_and_not_billed_further() -> None:
    options: dict[str, Any] = {"rounds": 4, "eval_every": 1, "sampling": "full"}
    (tuned,) = tune_methods(
        quadratic(1.0), [Local(local_steps=1)], model="linear", training=options, sampler="grid",
        search={"local": {"lr": [0.01, 0.02, 0.3, 0.4]}}, width=4, prune=True,
    )  # fmt: skip
    assert [t.state for t in tuned.trials] == ["pruned", "pruned", "pruned", "complete"]
    assert [t.steps for t in tuned.trials] == [1, 1, 2, 4]
    assert tuned.trials[0].reason == "one of the worse half after round 1"


def test_step_sizes_may_decay() -> None:
    options: dict[str, Any] = {"rounds": 2, "eval_every": 1, "sampling": "full"}
    (tuned,) = tune_methods(
        quadratic(1.0), [Local(local_steps=1)], model="linear", training=options, sampler="grid",
        search={"local": {"lr": [0.5, 1.0]}}, width=2, decay=True,
    )  # fmt: skip
    assert tuned.method.to_config()["lr"] == {"kind": "cosine", "value": 1.0, "rounds": 2.0}


def test_folds_are_averaged() -> None:
    options: dict[str, Any] = {"rounds": 1, "eval_every": 1, "sampling": "full"}
    (tuned,) = tune_methods(
        quadratic(4.0), [Local(local_steps=1)], model="linear", training=options, sampler="grid",
        search={"local": {"lr": [0.1, 0.25]}}, width=2, folds=3,
    )  # fmt: skip
    assert [t.steps for t in tuned.trials] == [3, 3]
    assert all(len(t.rounds) == 3 for t in tuned.trials)


def test_minutes_are_shared_equally() -> None:
    clock = Clock(1.0, 3, 1)
    first, second = clock.begin(), clock.begin()
    assert first is not None
    assert second is not None
    assert second - first == pytest.approx(10, abs=0.5)  # what the first left over is shared
    third = clock.begin()
    assert third is not None
    assert third - first == pytest.approx(40, abs=0.5)


@pytest.mark.parametrize(
    ("tune", "says"),
    [
        ({"sampler": "best"}, "tune.sampler, 'best' is unknown"),
        ({"steps": 5, "minutes": 1.0}, "there is one budget"),
        ({"folds": 1}, "tune.folds is 1"),
        ({"preset": "c2"}, "tune.preset, 'c2' is unknown"),
        ({"search": {"fedy": {}}}, "did you mean 'fedu'"),
        ({"search": {"fedu": {"etta": [1]}}}, "did you mean 'eta'"),
        ({"search": {"fedu": {"eta": []}}}, "tune.search.fedu.eta is empty"),
        ({"search": {"fedu": {"lr": [0.1, -1.0]}}}, "tune.search.fedu.lr is -1.0"),
        ({"search": {"fedu": {"eta": {"low": 0.0, "high": 1.0}}}}, "must have 0 < low < high"),
        ({"search": {"fedu": {"eta": {"low": 1.0, "hi": 2.0}}}}, "'hi' is unknown"),
    ],
)
def test_a_wrong_section_is_refused(tune: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Experiment.from_config({"data": "digits", "method": "fedu", "tune": tune})


def test_the_section_survives_a_round_trip() -> None:
    section = {
        "steps": 100,
        "search": {"fedu": {"eta": [0.1, 1.0], "lr": {"low": 0.1, "high": 1.0, "scale": "log"}}},
    }
    made = Experiment.from_config({"data": "digits", "method": "fedu", "tune": section})
    again = Experiment.from_config(made.to_config())
    assert again == made
    assert made.tune is not None
    assert made.tune.to_config()["search"] == section["search"]
    assert made.single(made.contenders[0], 3).tune is None


def test_the_grids_of_the_lp_proj_paper() -> None:
    """App. C.2: 3 × 3 × 3 × 2 points for pFedMe and lp-proj, 3 × 2 for FedAvg."""
    spaces = Tuning.from_config({"preset": "lp-proj-c2"}).spaces
    count = lambda name: int(np.prod([len(s.points(0)) for s in spaces[name].values()]))
    assert {name: count(name) for name in spaces} == {
        "local": 3, "fedavg": 6, "lg-fedavg": 6, "per-fedavg": 9,
        "ditto": 54, "rsa": 54, "pfedme": 54, "lp-proj": 54, "lp-proj-1": 54, "lp-proj-2": 54,
    }  # fmt: skip


def test_a_grid_that_a_budget_may_cut_comes_in_random_order() -> None:
    spaces = Tuning.from_config({"preset": "lp-proj-c2"}).spaces["pfedme"]
    whole, mixed = grid_points(spaces, None), grid_points(spaces, 3)
    assert whole != mixed
    assert sorted(map(str, whole)) == sorted(map(str, mixed))
    assert len({str(p["lr"]) for p in mixed[:18]}) == 3, "not one corner first"
