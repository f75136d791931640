"""IFCA on quadratics is k-means with gradient steps; with one cluster it is FedAvg; hidden groups
are found.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput, Simulator, Training
from coterie.core.vector import Vector
from coterie.data.federation import pack
from coterie.methods.ifca import Message
from coterie.methods.several import one_of, scattered, total_losses
from coterie.methods.star import Cohort
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, trained

LR, STEPS = 0.2, 2


def hub(run: Any) -> NDArray[Any]:
    """The models at the hub, a row each."""
    return np.concatenate(
        [np.asarray(leaf).reshape(len(leaf), -1) for leaf in run.hub.leaves], axis=1
    )


def begun(method: coterie.IFCA, models: Any, **training: Any) -> Simulator:
    """A run on the quadratics whose hub begins with these models."""
    options = Training.from_config({**EXACT, **training})
    simulator = Simulator(method, linear(), "linear", options)
    with simulator.precision():
        put = lambda leaf: jnp.asarray(models, leaf.dtype).reshape(leaf.shape)
        first = simulator.hub.map(put)
    simulator.hub_state = simulator.hub_state._replace(method_state=first)
    while simulator.t < options.rounds:
        simulator.advance(options.rounds - simulator.t)
    return simulator


def test_rounds_on_quadratics_are_k_means_with_gradient_steps() -> None:
    """f_i(w) = (b_i/2)‖w − ŵ_i‖² + const: client i is nearest to the model it picks. Two of four
    clients a round, by hand; then to the fixed point: w_j = Σ b_i ŵ_i / Σ b_i of those nearest.
    """
    b, best = facts(linear())
    start = np.stack([best[0], best[1:].mean(0)]) + 0.3
    picks = lambda w: np.argmin(np.linalg.norm(w[None] - best[:, None], axis=2), axis=1)
    assert picks(start).tolist() == [0, 1, 1, 1]
    run = begun(coterie.IFCA(lr=LR, local_steps=STEPS), start, rounds=8, cohort=2)
    models, (sampled, seen) = start.copy(), (run.ledger.rows()[:, :2], set())
    for t in range(8):
        members = sampled[sampled[:, 0] == t, 1].astype(int)
        chosen, shrunk = picks(models)[members], (1 - LR * b[members]) ** STEPS
        moved = best[members] + shrunk * (models[chosen] - best[members])
        for j in set(chosen):
            models[j] = moved[chosen == j].mean(0)
        seen |= set(chosen)
    np.testing.assert_allclose(hub(run), models, rtol=1e-10)
    assert seen == {0, 1}, "both models must have been picked"
    assert (run.ledger.rows()[:, 2:] == [8 * (D + 1), 8 * 2 * D, STEPS]).all(), "k models go down"

    last = begun(coterie.IFCA(lr=LR, local_steps=1), start, rounds=500)
    found, personal = hub(last), last.all_models().leaves[0].reshape(N, D)
    chosen = picks(found)
    assert set(chosen) == {0, 1}
    for j in (0, 1):
        mine = chosen == j
        centre = (b[mine] * best[mine]).sum(0) / b[mine].sum()
        np.testing.assert_allclose(found[j], centre, atol=1e-9)
        np.testing.assert_array_equal(personal[mine], np.repeat(found[j][None], mine.sum(), 0))


def test_models_begin_apart_and_the_first_is_the_runs_own() -> None:
    """Noise has the size of an array's entries; where all are alike, a length of about σ."""
    varied, alike = jnp.linspace(-1.0, 1.0, 400), jnp.ones(400)
    key, template = jax.random.key(0), Vector({"a": varied, "b": alike})
    made = {s: scattered(template, key, 3, s).tree for s in (1.0, 0.5)}
    for name, scale in (("a", float(varied.std())), ("b", 400**-0.5)):
        noise = made[1.0][name] - template.tree[name]
        assert (noise[0] == 0).all()
        assert noise[1:].std(1).tolist() == pytest.approx([scale, scale], rel=0.15)
        assert abs(np.corrcoef(noise[1], noise[2])[0, 1]) < 0.2
        np.testing.assert_allclose(made[0.5][name] - template.tree[name], noise / 2, atol=1e-6)


def test_with_one_cluster_it_is_fedavg(ragged: Federation) -> None:
    options: dict[str, Any] = {
        "lr": 0.1,
        "local_steps": 3,
        "weighting": "samples",
        "optimizer": "momentum",
        "optimizer_state": "kept",
        "server_optimizer": "fedadam",
    }
    one = trained(coterie.IFCA(**options, clusters=1), ragged, cohort=3)
    plain = trained(coterie.FedAvg(**options), ragged, cohort=3)
    np.testing.assert_allclose(flat(one.hub), flat(plain.hub), rtol=1e-12, atol=1e-14)


def opposed(clients: int = 6) -> Federation:
    """Clients with even numbers label by the sign of x_0, the others by its opposite."""
    rng = np.random.default_rng(3)

    def some(count: int) -> Any:
        parts = []
        for k in range(clients):
            x = rng.standard_normal((count, 3))
            parts.append((x, ((x[:, 0] > 0) ^ bool(k % 2)).astype(np.int64)))
        return pack(parts)

    return Federation("opposed", some(30), some(0), some(40), classes=2)


def test_two_hidden_groups_are_found() -> None:
    fed, options = opposed(), {"lr": 0.5, "local_steps": 5}
    training: dict[str, Any] = {"rounds": 30, "eval_every": 30, "batch_size": 10}
    found = coterie.simulate(coterie.IFCA(**options), fed, "mlr", **training)
    models = found.simulator.all_models().leaves[-1].reshape(6, -1)
    for k in range(2, 6):
        np.testing.assert_array_equal(models[k], models[k - 2])
    assert np.abs(models[0] - models[1]).max() > 0.5
    assert found.client_scores().min() > 0.9
    one = coterie.simulate(coterie.FedAvg(**options), fed, "mlr", **training)
    assert one.client_scores().mean() < 0.65, "one model cannot serve both groups"


def test_a_model_that_nobody_picks_stays_and_any_number_names_a_cluster() -> None:
    """Three models, messages for 0 and for what a malicious client made of a number: 7.4 and −2.
    Weights 1, 2, 3 count within a cluster; β is 1/2.
    """
    method = coterie.IFCA(clusters=3, beta=0.5, server_optimizer=None)
    kept = Vector({"w": jnp.array([[0.0], [10.0], [20.0]])})
    sent = Message(Vector({"w": jnp.array([[3.0], [30.0], [6.0]])}), jnp.array([0.2, 7.4, -2.0]))
    cohort = Cohort(jnp.arange(3), jnp.array([1.0, 2.0, 3.0]))
    new = method.merge(kept, sent, cohort, 0)
    expected = [0.5 * (1 * 3 + 3 * 6) / 4, 10.0, 0.5 * (20 + 30)]
    np.testing.assert_allclose(np.asarray(new.tree["w"])[:, 0], expected, rtol=1e-6)


@pytest.mark.slow
def test_clusters_are_compared_on_as_much_data_as_was_asked_for(ragged: Federation) -> None:
    """Sums of losses over an epoch are those over all samples; `look` cuts them."""
    run = trained(coterie.IFCA(local_steps=1), ragged, rounds=1)
    (x, y), models = ragged.train.client(3), run.hub
    with run.precision():
        objective = run.now().objective(3)
        whole = np.asarray(total_losses(models, objective, 50))
        first = np.asarray(total_losses(models, objective, 1))
        for j in range(2):
            outputs = run.model.outputs(one_of(models, j).tree, x)
            losses = objective.learner.sample_losses(outputs.T, y)
            np.testing.assert_allclose(whole[j], np.sum(losses), rtol=1e-10)
            alone = objective.loss(one_of(models, j), objective.batch(0))
            np.testing.assert_allclose(first[j], 4 * alone, rtol=1e-10)


def test_a_channel_that_cuts_off_is_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match='ifca needs its messages as they are: it must be "plai'):
        coterie.simulate(coterie.IFCA(), ragged, rounds=1, channel="top-k")
