"""FedEM's rounds repeated in NumPy; with one component it is FedAvg; mixtures of groups are found,
predicted by, exported and used by estimators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput, Simulator
from coterie.data.federation import pack
from coterie.engine.adapt import adapt
from coterie.models.build import build_model
from coterie.models.mixture import mixture
from tests.support.conformance_cases import cohorts
from tests.support.groups import rows, two_groups
from tests.support.quadratics import EXACT
from tests.support.star_runs import flat, memories, trained


def stacked(run: Any) -> NDArray[Any]:
    """The components at the hub, a row each."""
    return rows(run.hub)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_rounds_with_sampled_clients_repeated_in_numpy(l2: float) -> None:
    """q of every sample from the components as they came; π is their mean; then weighted steps."""
    fed, lr, steps, count = two_groups(), 0.2, 2, 2
    method = coterie.FedEM(components=count, lr=lr, local_steps=steps, l2=l2)
    run = trained(method, fed, "linear", rounds=5, cohort=3, seed=1, **EXACT)
    bound: Any = run.method
    with run.precision():
        theta = rows(bound.start)
    assert np.abs(theta[0] - theta[1]).max() > 0.1, "they begin apart"
    pi = np.full((6, count), 1 / count)
    for members in cohorts(1, 5, 6, 3):
        sent, n = [], []
        for k in members:
            x, y = fed.train.client(k)
            weight = pi[k][:, None] * np.exp(-0.5 * (theta @ x.T - y) ** 2)
            q = weight / weight.sum(0)
            mine = theta.copy()
            for _ in range(steps):
                mine = mine - lr * ((q * (mine @ x.T - y)) @ x / len(x) + l2 * mine)
            pi[k] = q.mean(1)
            sent.append(mine)
            n.append(len(x))
        theta = np.average(sent, axis=0, weights=n)
    np.testing.assert_allclose(stacked(run), theta, rtol=1e-10)
    np.testing.assert_allclose(memories(run).weights, pi, rtol=1e-10)
    assert np.ptp(pi) > 0.1
    d = 8 * count * 4
    assert (run.ledger.rows()[:, 2:] == [d, d, steps]).all(), "M models up and down"


def test_with_one_component_it_is_fedavg(ragged: Federation) -> None:
    options: dict[str, Any] = {
        "lr": 0.1,
        "local_steps": 3,
        "optimizer": "momentum",
        "optimizer_state": "kept",
        "server_optimizer": "fedadam",
        "l2": 0.1,
    }
    one = trained(coterie.FedEM(**options, components=1), ragged, cohort=3)
    plain = trained(coterie.FedAvg(**options, weighting="samples"), ragged, cohort=3)
    np.testing.assert_allclose(flat(one.hub), flat(plain.hub), rtol=1e-12, atol=1e-14)


def test_epochs_of_mini_batches_give_the_weights_of_all_samples(ragged: Federation) -> None:
    run = trained(coterie.FedEM(components=2, local_steps=1), ragged, rounds=1)
    bound: Any = run.method
    with run.precision():
        objective, theta = run.now().objective(3), run.hub
        found = bound.mixed(theta, jnp.array([0.3, 0.7]), objective)
        x, y = ragged.train.client(3)
        each = [run.model.apply.each(theta.tree, jnp.asarray(x))[m] for m in range(2)]
        logs = [np.asarray(jax.nn.log_softmax(o, 0))[y, np.arange(len(y))] for o in each]
    weight = np.array([[0.3], [0.7]]) * np.exp(logs)
    np.testing.assert_allclose(found, (weight / weight.sum(0)).mean(1), rtol=1e-10)


def mixed_groups() -> Federation:
    """Labels by the sign of x_0 in a share of the rows, by its opposite in the others; which rows,
    nobody can see. Shares 1, 1, 0, 0.
    """
    rng = np.random.default_rng(3)

    def some(count: int) -> Any:
        parts = []
        for k in range(4):
            x = rng.standard_normal((count, 3))
            parts.append((x, ((x[:, 0] > 0) ^ (k > 1)).astype(np.int64)))
        return pack(parts)

    return Federation("mixed", some(40), some(0), some(60), classes=2)


@pytest.fixture(scope="module")
def found() -> Any:
    method = coterie.FedEM(components=2, lr=0.5, local_steps=5)
    return coterie.simulate(
        method, mixed_groups(), "mlr", rounds=40, eval_every=40, batch_size=10, seed=2
    )


def test_groups_find_their_components(found: Any) -> None:
    pi = memories(found.simulator).weights
    assert (np.argmax(pi, 1)[:2] != np.argmax(pi, 1)[2:]).all()
    assert pi.max(1).min() > 0.9
    assert found.client_scores().min() > 0.9


def test_scores_are_those_of_the_mixed_probabilities(found: Any) -> None:
    sim, fed = found.simulator, mixed_groups()
    x, y = fed.test.client(1)
    model = sim.models(1)["personal"].tree
    parts = [jax.tree.map(lambda a: a[m], model["components"]) for m in range(2)]  # noqa: B023
    base = build_model("mlr", fed.shape)
    each = [np.asarray(jax.nn.softmax(base.outputs(p, x.astype(np.float32)), -1)) for p in parts]
    mixed = np.tensordot(np.asarray(model["weights"]), each, 1)
    score = found.snapshots[-1].scores["test"]
    assert score.score[0, 1] == pytest.approx(np.mean(mixed.argmax(1) == y))
    assert score.loss[0, 1] == pytest.approx(-np.log(mixed[np.arange(60), y]).mean(), rel=1e-5)


def test_a_newcomer_finds_its_weights(found: Any) -> None:
    sim, fed = found.simulator, mixed_groups()
    pi = memories(sim).weights
    for k in (0, 3):
        there = adapt(sim, fed.subset(np.array([k])), rounds=3).models["personal"].tree["weights"]
        assert np.argmax(there) == np.argmax(pi[k])
        assert np.max(there) > 0.9


def test_estimators_predict_by_mixtures() -> None:
    fed = mixed_groups()
    x, y = (np.concatenate([fed.train.client(k)[i] for k in range(4)]) for i in (0, 1))
    groups = np.repeat(np.arange(4), 40)
    made = coterie.PersonalClassifier(
        method="fedem",
        method_options={"components": 2, "lr": 0.5, "local_steps": 5},
        rounds=40,
        standardise=False,
    ).fit(x, y, groups=groups)
    probabilities = made.predict_proba(x, groups=groups)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert np.mean(probabilities.argmax(1) == y) > 0.9


def test_a_mixture_is_exported_but_not_as_onnx(tmp_path: Path) -> None:
    from coterie.models.exported import model as exported
    from coterie.models.exported.onnx import to_onnx
    from coterie.runs.experiment import Experiment
    from coterie.runs.export import exported_of

    config: dict[str, Any] = {
        "data": {"name": "digits", "clients": 4},
        "method": {"name": "fedem", "components": 2, "local_steps": 2},
        "training": {"rounds": 1},
    }
    experiment = Experiment.from_config(config)
    sim = Simulator(
        experiment.method, experiment.federation(), experiment.model, experiment.training
    )
    sim.advance(1)
    made = exported_of(sim, experiment, sim.models(0)["personal"], "0", "personal")
    made.write(tmp_path)
    x = sim.federation.test.client(0)[0].astype(np.float32)
    again = exported.read(tmp_path)
    np.testing.assert_array_equal(again.outputs_of(x), made.outputs_of(x))
    np.testing.assert_allclose(np.exp(made.outputs_of(x)).sum(1), 1, rtol=1e-5)
    with pytest.raises(InvalidInput, match="the model is a mixture, but ONNX files hold one model"):
        to_onnx(made)


def test_models_that_look_at_batches_are_refused(ragged: Federation) -> None:
    spec = coterie.get_model("mlp", {"norm": "batch", "hidden": "3"})
    with pytest.raises(InvalidInput, match="normalises by batches, but the parts of a mixture"):
        coterie.simulate(coterie.FedEM(), ragged, spec, rounds=1)


def test_weights_of_nothing_leave_a_component_out() -> None:
    line = coterie.Model(lambda key: {"w": jnp.ones(2)}, lambda p, x: (x @ p["w"])[:, None])
    both = mixture(line, 2, "regression")
    parts = {"w": jnp.array([[1.0, 2.0], [5.0, 5.0]])}
    tree = {"components": parts, "weights": jnp.array([1.0, 0.0])}
    assert both.apply(tree, jnp.array([[3.0, 4.0]])).tolist() == [[11.0]]
