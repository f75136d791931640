"""Batch normalisation: statistics are each client's own, worked out from its data, and never sent
unless asked for.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput, Model, Statistics
from coterie.engine.adapt import adapt
from coterie.engine.reference import simulate_slowly
from coterie.methods.split import named
from coterie.models.base import Fitted
from tests.support.conformance_cases import assert_alike
from tests.support.room import Room, assert_same, make_plan

MLP = coterie.get_model("mlp", {"hidden": "5", "norm": "batch"})
SHARED = MLP.replace(norm="batch-shared")
RUN: dict[str, Any] = {"rounds": 3, "eval_every": 3, "batch_size": 4, "precision": "float64"}
H, D, C = 5, 4, 3
WHOLE = D * H + H + 2 * H + H * C + C
"""Parameters of MLP on the federation `ragged`."""


def first_layer(model: Fitted, x: NDArray[Any]) -> NDArray[Any]:
    p = model.parameters["layer0"]
    return np.asarray(x @ np.asarray(p["w"]).T + np.asarray(p["b"]))


@pytest.fixture(scope="module")
def run(ragged: Federation) -> coterie.Result:
    return coterie.simulate(coterie.FedAvg(lr=0.1, local_steps=2), ragged, MLP, **RUN)


def test_statistics_are_those_of_each_clients_own_rows(
    run: coterie.Result, ragged: Federation
) -> None:
    """The mean over mini-batches, weighted by their samples, is the mean over all rows; variances
    are those within batches, so at most the whole one. All clients have the same parameters.
    """
    means = []
    for k in range(5):
        model = run.personal(k).tree
        z = first_layer(model, ragged.train.client(k)[0])
        found = model.statistics["layer0"]
        np.testing.assert_allclose(found["mean"], z.mean(0), rtol=1e-9, atol=1e-12)
        assert (found["var"] <= z.var(0) + 1e-12).all()
        means.append(found["mean"])
    assert np.ptp(np.array(means), axis=0).min() > 1e-3
    same = [run.personal(k).tree.parameters["layer1"]["w"] for k in range(2)]
    np.testing.assert_array_equal(*same)


def test_scores_are_those_of_the_exported_model(run: coterie.Result, ragged: Federation) -> None:
    """Predictions by hand from what a client's model is, one sample at a time."""
    found = run.snapshots[-1].scores["test"].score[0]
    for k in range(5):
        x, y = ragged.test.client(k)
        if not len(y):
            continue
        model = run.personal(k).tree
        p, s = model.parameters, model.statistics["layer0"]
        norm = p["layer0"]["norm"]
        z = (first_layer(model, x) - s["mean"]) / np.sqrt(s["var"] + 1e-5)
        h = np.maximum(z * norm["scale"] + norm["shift"], 0)
        out = h @ p["layer1"]["w"].T + p["layer1"]["b"]
        assert found[k] == pytest.approx((out.argmax(1) == y).mean(), abs=1e-12)


def test_metrics_of_whole_splits_look_at_the_same_models(
    run: coterie.Result, ragged: Federation
) -> None:
    """Balanced accuracy is not a mean over rows, so it is worked out from outputs."""
    options = {**RUN, "metric": "balanced-accuracy"}
    found = coterie.simulate(coterie.FedAvg(lr=0.1, local_steps=2), ragged, MLP, **options)
    np.testing.assert_array_equal(found.personal(3).flat(), run.personal(3).flat())
    assert np.isfinite(found.snapshots[-1].scores["test"].score[0, 3])


def test_with_all_data_in_a_batch_they_are_exact_and_padding_does_not_count(
    ragged: Federation,
) -> None:
    """Clients are smaller than the largest, which sets the size of batches."""
    options = {**RUN, "rounds": 1, "eval_every": 1, "sampling": "full"}
    del options["batch_size"]
    result = coterie.simulate(coterie.Local(lr=0.1, local_steps=1), ragged, MLP, **options)
    for k in (0, 2, 4):
        z = first_layer(result.personal(k).tree, ragged.train.client(k)[0])
        found = result.personal(k).tree.statistics["layer0"]
        np.testing.assert_allclose(found["var"], z.var(0), rtol=1e-9)


def test_they_are_not_sent_unless_they_are_shared(run: coterie.Result, ragged: Federation) -> None:
    """Five clients, both ways, three rounds."""
    assert run.ledger.up == 3 * 5 * 8 * WHOLE
    shared = coterie.simulate(coterie.FedAvg(lr=0.1, local_steps=2), ragged, SHARED, **RUN)
    assert shared.ledger.up == 3 * 5 * 8 * (WHOLE + 2 * H)
    one, two = (shared.personal(k).tree.statistics["layer0"]["mean"] for k in (0, 4))
    np.testing.assert_array_equal(one, two)


def test_shared_statistics_follow_the_batches_and_leave_the_loss_alone(ragged: Federation) -> None:
    """A step of size lr is s ← (1 − lr) s + lr b; their distance is no part of the loss."""
    options = coterie.Training(rounds=1, sampling="full", precision="float64")
    lr = 0.3
    sim = coterie.Simulator(coterie.Local(lr=lr, local_steps=1), ragged, SHARED, options)
    with sim.precision():
        objective = sim.now().objective(3)
        begin = sim.template
        batch = objective.batch(0)
        there = begin.tree._replace(statistics=jax.tree.map(jnp.ones_like, begin.tree.statistics))
        losses = [float(objective.loss(coterie.Vector(m), batch)) for m in (begin.tree, there)]
    assert losses[0] == losses[1]
    x = ragged.train.client(3)[0]
    z = first_layer(jax.tree.map(np.asarray, begin.tree), x)
    before = np.asarray(begin.tree.statistics["layer0"]["mean"])
    sim.advance(1)
    after = sim.models(3)["personal"].tree.statistics["layer0"]["mean"]
    np.testing.assert_allclose(after, (1 - lr) * before + lr * z.mean(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        coterie.FedBN(lr=0.1, local_steps=2),
        pytest.param(coterie.PFedMe(local_rounds=2, inner_steps=2), marks=pytest.mark.slow),
        pytest.param(coterie.FedU(local_epochs=1), marks=pytest.mark.slow),
        pytest.param(coterie.Global(local_steps=2), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_the_slow_simulator_agrees(method: coterie.Method, ragged: Federation) -> None:
    options = {**RUN, "cohort": 3}
    fast = coterie.simulate(method, ragged, MLP, **options)
    slow = simulate_slowly(method, ragged, MLP, **options)
    assert_alike(fast, slow, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_deployed_clients_have_the_simulators_statistics(tmp_path: Path) -> None:
    fed = coterie.load("digits", clients=4)
    plan = dataclasses.replace(make_plan(fed, "fedbn"), model=MLP)
    assert_same(Room(plan, fed, tmp_path).run(), fed, rtol=1e-4)


def test_a_newcomer_gets_statistics_of_its_own_data(ragged: Federation) -> None:
    newcomers = ragged.subset(np.array([3]))
    members = ragged.subset(np.array([0, 1, 2]))
    sim = coterie.Simulator(
        coterie.FedAvg(local_steps=1), members, MLP, coterie.Training(rounds=1, batch_size=4)
    )
    model = adapt(sim, newcomers, rounds=1).models["global"].map(lambda leaf: leaf[0]).tree
    z = first_layer(model, newcomers.train.client(0)[0])
    np.testing.assert_allclose(model.statistics["layer0"]["mean"], z.mean(0), rtol=1e-4, atol=1e-5)


def test_fedbn_keeps_normalisation_and_shares_the_rest(ragged: Federation) -> None:
    run = coterie.simulate(coterie.FedBN(lr=0.1, local_steps=2), ragged, MLP, **RUN)
    assert run.ledger.up == 3 * 5 * 8 * (WHOLE - 2 * H)
    one, two = (run.personal(k).tree.parameters for k in (0, 4))
    np.testing.assert_array_equal(one["layer0"]["w"], two["layer0"]["w"])
    assert np.abs(one["layer0"]["norm"]["scale"] - two["layer0"]["norm"]["scale"]).min() > 1e-4
    same = coterie.FedPer(personal="*NORM*", weighting="uniform", lr=0.1, local_steps=2)
    by_pattern = coterie.simulate(same, ragged, MLP, **RUN)
    np.testing.assert_array_equal(by_pattern.personal(3).flat(), run.personal(3).flat())


def test_fedbn_without_normalisation_is_fedavg_and_says_so(ragged: Federation) -> None:
    options = {**RUN, "rounds": 1, "eval_every": 1}
    with pytest.warns(coterie.Notice, match="no normalisation layer"):
        bn = coterie.simulate(coterie.FedBN(local_steps=2), ragged, "mlr", **options)
    avg = coterie.simulate(
        coterie.FedAvg(local_steps=2, weighting="uniform"), ragged, "mlr", **options
    )
    np.testing.assert_allclose(bn.personal(0).flat(), avg.personal(0).flat(), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"personal": "*nrm*"}, r"must match parameters of the model: layer0.b, layer0.norm.scale"),
        ({"personal": "*norm*", "shared": "layer0"}, "shared is 'layer0'"),
    ],
)
def test_patterns_that_name_nothing_or_twice_are_refused(
    options: dict[str, str], words: str, ragged: Federation
) -> None:
    with pytest.raises(InvalidInput, match=words):
        coterie.simulate(coterie.get_method("fedbn", options), ragged, MLP, rounds=1)


def test_the_papers_resnet_normalises_by_batch() -> None:
    by_group = coterie.get_model("resnet").build((28, 28, 1), 10)
    by_batch = coterie.get_model("resnet", {"norm": "batch"}).build((28, 28, 1), 10)
    assert by_group.parameters() == by_batch.parameters() == 678_794
    shapes = by_batch.predictor((28, 28, 1))
    assert {len(v["mean"].shape) for v in shapes.statistics.values()} == {1}
    assert len(shapes.statistics) == 9
    assert "1a.norm1.scale" in named(coterie.Vector(shapes.parameters))


def test_an_old_config_of_a_model_is_as_it_was() -> None:
    assert "norm" not in coterie.get_model("mlp").to_config()
    assert "norm" not in coterie.get_model("resnet").to_config()


INIT = lambda key: {"w": jnp.zeros((4, 3))}
OUT = lambda p, x: x @ p["w"]


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (lambda p, x, w: (OUT(p, x), {"count": jnp.int32(3)}), "of type int32.*leave counters out"),
        (lambda p, x, w: (OUT(p, x)[:, :2], {}), r"outputs of shape \(2, 2\) in training mode"),
        (lambda p, x: OUT(p, x), "fails in training mode"),
    ],
)
def test_training_modes_that_do_not_fit_are_refused(
    train: Any, words: str, ragged: Federation
) -> None:
    model = Model(INIT, lambda m, x: OUT(m.parameters, x), statistics=Statistics(train))
    with pytest.raises(InvalidInput, match=words):
        coterie.simulate(coterie.FedAvg(), ragged, model, rounds=1)
