"""Per-FedAvg follows the gradient of its meta-loss, and never looks at what it is tested on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Result
from coterie.data.federation import Split
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, trained

MLP = coterie.get_model("mlp", {"hidden": "3", "l2": 0.1})


@pytest.mark.parametrize(("order", "power"), [("first-order", 1), ("hessian-vector", 2)])
def test_it_reaches_its_fixed_point(order: str, power: int) -> None:
    """w̃ − ŵ = (1 − αb)(w − ŵ), so the step is c(w − ŵ) with c = b(1 − αb), and b(1 − αb)² with the
    Hessian: w = Σ c_k ŵ_k / Σ c_k.

    Adapted to client k it is ŵ_k + (1 − αb_k)^steps (w − ŵ_k).
    """
    fed = linear()
    b, best = facts(fed)
    alpha = 0.3
    method = coterie.PerFedAvg(lr=0.4, adapt_lr=alpha, adapt_steps=2, local_steps=1, order=order)
    run = trained(method, fed, "linear", rounds=400, **EXACT)
    c = b * (1 - alpha * b) ** power
    w = (c * best).sum(0) / c.sum()
    np.testing.assert_allclose(flat(run.hub), w, rtol=0, atol=1e-10)
    personal = run.all_models("personal").leaves[0].reshape(N, D)
    np.testing.assert_allclose(
        personal, best + (1 - alpha * b) ** 2 * (w - best), rtol=0, atol=1e-10
    )
    other = b * (1 - alpha * b) ** (3 - power)
    assert np.abs((other * best).sum(0) / other.sum() - w).max() > 1e-2, (
        "the two orders must differ"
    )


def test_the_hessian_vector_product_gives_the_gradient_of_the_meta_loss(ragged: Federation) -> None:
    method = coterie.PerFedAvg(adapt_lr=0.5, order="hessian-vector")
    simulator = coterie.Simulator(method, ragged, MLP, coterie.Training(rounds=1, **EXACT))

    @jax.jit
    def gradients(w: Any) -> Any:
        objective = simulator.now().objective(3)
        batch = objective.batch(0)
        whole = jax.grad(lambda w: objective.loss(w - 0.5 * objective.gradient(w, batch), batch))(w)
        return whole, *(
            method.replace(order=order).meta_gradient(w, 0.5, objective, (batch,) * 3)
            for order in ("hessian-vector", "first-order")
        )

    with simulator.precision():
        whole, exact, first = map(flat, gradients(simulator.template))
    np.testing.assert_allclose(exact, whole, rtol=1e-11, atol=1e-14)
    assert np.abs(first - whole).max() > 1e-3


def test_the_three_batches_of_a_step_are_as_described() -> None:
    """One round by hand, with D = batch 2r, D' = batch 2r + 1, D'' = batch 2R + r and the Hessian
    as a whole matrix.
    """
    lr, alpha, steps = 0.2, 0.3, 2
    method = coterie.PerFedAvg(lr=lr, adapt_lr=alpha, local_steps=steps, order="hessian-vector")
    run = trained(method, linear(), "linear", rounds=1, batch_size=1)  # six batches, all different
    first = run.now()._replace(t=0)

    @jax.jit
    def by_hand(client: Any, w: Any) -> Any:
        objective = first.objective(client)
        gradient = lambda w, i: objective.gradient(run.template.like(w), objective.batch(i)).flat()
        for r in range(steps):
            g = gradient(w - alpha * gradient(w, 2 * r), 2 * r + 1)
            w = w - lr * (g - alpha * jax.jacobian(gradient)(w, 2 * steps + r) @ g)
        return w

    with run.precision():
        results = [by_hand(k, run.template.flat()) for k in range(N)]
    np.testing.assert_allclose(flat(run.hub), np.mean(results, 0), rtol=1e-11, atol=1e-13)


def poisoned(federation: Federation) -> Federation:
    def spoil(split: Split) -> Split:
        return dataclasses.replace(
            split, x=split.x * -1e3 + 7, y=(split.y + 1) % federation.classes
        )

    return dataclasses.replace(
        federation, validation=spoil(federation.validation), test=spoil(federation.test)
    )


def states(result: Result) -> tuple[bytes, ...]:
    return (
        flat(result.simulator.hub).tobytes(),
        flat(result.simulator.all_models("personal")).tobytes(),
    )


def test_poisoned_test_and_validation_data_change_nothing_but_scores(ragged: Federation) -> None:
    options: dict[str, Any] = {
        "rounds": 3,
        "eval_every": 1,
        "batch_size": 4,
        "cohort": 3,
        "precision": "float64",
    }
    method = coterie.PerFedAvg(lr=0.1, adapt_lr=0.2, adapt_steps=2, local_steps=2)
    clean, spoilt = (coterie.simulate(method, f, **options) for f in (ragged, poisoned(ragged)))
    assert states(clean) == states(spoilt)
    losses: list[NDArray[np.float64]] = [
        r.snapshots[-1].scores["test"].loss for r in (clean, spoilt)
    ]
    assert (np.abs(losses[0] - losses[1])[:, [0, 1, 3, 4]] > 1).all(), (
        "the poison must be seen in the scores"
    )
    moved = clean.simulator.all_models("personal").leaves[0] - np.asarray(
        clean.simulator.hub.leaves[0]
    )
    assert (np.abs(moved).reshape(5, -1).max(1) > 1e-3).all()


def test_in_a_row_it_is_fedavg_with_two_step_sizes(ragged: Federation) -> None:
    options: dict[str, Any] = {"rounds": 3, "batch_size": 4, "cohort": 3, "precision": "float64"}
    both = coterie.PerFedAvg(lr=0.1, adapt_lr=0.1, local_steps=2, order="in-a-row")
    plain = coterie.FedAvg(lr=0.1, local_steps=4, weighting="uniform")
    one, other = (trained(m, ragged, "mlr", **options) for m in (both, plain))
    assert flat(one.hub).tobytes() == flat(other.hub).tobytes()
    again = trained(both.replace(adapt_lr=0.2), ragged, "mlr", **options)
    assert np.abs(flat(again.hub) - flat(one.hub)).max() > 1e-3
    extra = trained(both.replace(extra_step=True), ragged, "mlr", **options)
    models = [flat(r.all_models("personal")) for r in (one, extra)]
    assert flat(extra.hub).tobytes() == flat(one.hub).tobytes()
    assert np.abs(models[0] - models[1]).max() > 1e-3
    with pytest.raises(coterie.InvalidInput, match=r"per-fedavg\.optimizer is .*leave"):
        both.replace(optimizer="adam")


def test_all_gradients_are_counted() -> None:
    for order, each in (("first-order", 2), ("hessian-vector", 3), ("in-a-row", 2)):
        assert coterie.PerFedAvg(local_epochs=2, order=order).work().epochs == 2 * each
        assert coterie.PerFedAvg(local_steps=7, order=order).work().steps == 7 * each
    run = trained(
        coterie.PerFedAvg(lr=0.01, local_epochs=2, order="hessian-vector"),
        linear(),
        "linear",
        rounds=1,
        batch_size=4,
    )
    assert run.ledger.rows()[:, 4].tolist() == [3 * 2 * 2] * N  # 6 samples are two batches
