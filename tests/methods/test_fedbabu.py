"""FedBABU's head is trained nowhere but in fine-tuning; its body against closed forms, NumPy and
other methods.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, trained

MLP = coterie.get_model("mlp", {"hidden": "5"})


def tree(run: Any, view: str) -> Any:
    return run.all_models(view).tree


def test_with_one_array_it_reaches_fedavgs_fixed_point_and_tunes_it_in_closed_form() -> None:
    """f_k(x) = (b_k/2)‖x − ŵ_k‖²: w = Σ b_k ŵ_k / Σ b_k, and F steps of size α leave ŵ_k +
    (1 − αb_k)^F (w − ŵ_k).
    """
    fed = linear()
    b, best = facts(fed)
    method = coterie.FedBABU(
        lr=0.2, local_steps=1, adapt_lr=0.3, adapt_steps=4, weighting="uniform"
    )
    run = trained(method, fed, "linear", rounds=400, **EXACT)
    w = (b * best).sum(0) / b.sum()
    np.testing.assert_allclose(flat(run.hub), w, rtol=0, atol=1e-10)
    personal = run.all_models("personal").leaves[0].reshape(N, D)
    np.testing.assert_allclose(personal, best + (1 - 0.3 * b) ** 4 * (w - best), atol=1e-10)
    assert np.abs(personal - w).max() > 0.1


def error(w: NDArray[Any], b: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    z = x @ w.T + b
    p = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(p / p.sum(1, keepdims=True) - np.eye(len(b))[y])


@pytest.mark.parametrize("adapts", ["all", "head", "body"])
def test_rounds_and_fine_tuning_are_those_of_numpy(adapts: str, ragged: Federation) -> None:
    """Softmax regression, cut inside: the weights are the body, the intercept is the head."""
    lr, alpha, steps, tuning = 0.3, 0.4, 2, 3
    method = coterie.FedBABU(
        lr=lr, local_steps=steps, adapt_lr=alpha, adapt_steps=tuning, adapts=adapts
    )
    run = trained(method, ragged, "mlr", rounds=3, **EXACT)
    w, b = (np.array(run.template.tree[name]) for name in ("w", "b"))
    sizes = np.asarray(ragged.train.sizes)
    for _ in range(3):
        moved = []
        for k in range(5):
            x, y = ragged.train.client(k)
            own = w.copy()
            for _ in range(steps):
                own -= lr * error(own, b, x, y).T @ x / len(x)
            moved.append(own)
        w = np.tensordot(sizes / sizes.sum(), np.array(moved), 1)
    shared, personal = tree(run, "global"), tree(run, "personal")
    np.testing.assert_allclose(shared["w"], np.repeat(w[None], 5, 0), rtol=1e-10)
    np.testing.assert_array_equal(shared["b"], np.repeat(b[None], 5, 0))
    for k in range(5):
        (x, y), own, head = ragged.train.client(k), w.copy(), b.copy()
        for _ in range(tuning):
            e = error(own, head, x, y)
            own -= alpha * (adapts != "head") * e.T @ x / len(x)
            head -= alpha * (adapts != "body") * e.mean(0)
        np.testing.assert_allclose(personal["w"][k], own, rtol=1e-10)
        np.testing.assert_allclose(personal["b"][k], head, rtol=1e-10, atol=1e-15)
    assert set(run.ledger.rows()[:, 4]) == {steps}, "fine-tuning belongs to no round"
    assert set(run.ledger.rows()[:, 2]) == {8 * w.size}, "the head is never sent"


def test_the_head_is_trained_nowhere(ragged: Federation) -> None:
    """The random head of a network stays to the bit, and the body is FedRep's whose head stands
    still.
    """
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3}
    run = trained(coterie.FedBABU(**options, adapt_steps=0), ragged, MLP, rounds=3, **EXACT)
    assert jax.tree.leaves(run.store.gather(np.arange(5))) == []
    for view in ("personal", "global"):  # without a step the two are one
        for name, leaf in tree(run, view)["layer1"].items():
            first = np.asarray(run.template.tree["layer1"][name])
            np.testing.assert_array_equal(leaf, np.repeat(first[None], 5, 0))
    assert np.abs(run.template.tree["layer1"]["w"]).max() > 0.1, "the head must say something"
    rep = coterie.FedRep(**options, head_steps=1, head_lr=1e-14, weighting="samples")
    other = trained(rep, ragged, MLP, rounds=3, **EXACT)
    np.testing.assert_allclose(flat(run.hub), flat(other.hub), rtol=1e-10, atol=1e-12)
    moved = np.asarray(run.template.tree["layer0"]["w"]) - tree(run, "global")["layer0"]["w"]
    assert np.abs(moved).max() > 1e-2


def test_with_everything_shared_it_is_fedavg(ragged: Federation) -> None:
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3}
    all_shared = coterie.FedBABU(**options, shared="layer0,layer1")
    ours = trained(all_shared, ragged, MLP, cohort=3)
    np.testing.assert_array_equal(
        flat(ours.hub), flat(trained(coterie.FedAvg(**options), ragged, MLP, cohort=3).hub)
    )


@pytest.mark.slow
def test_epochs_count_in_training_and_in_fine_tuning(ragged: Federation) -> None:
    """Two epochs of a client with 14 samples in batches of 4 are 8 steps."""
    by_epochs = coterie.FedBABU(lr=0.1, local_epochs=1, adapt_lr=0.2, adapt_steps=2)
    run = trained(by_epochs, ragged, rounds=1)
    np.testing.assert_array_equal(run.ledger.rows()[:, 4], -(-ragged.train.sizes // 4))

    def tuned(**options: Any) -> bytes:
        with run.precision():
            found = jax.jit(run.method.replace(**options).models)(
                run.hub, (), run.now().objective(1)
            )
        return flat(found["personal"]).tobytes()

    in_steps = {steps: tuned(local_epochs=None, adapt_steps=steps) for steps in (7, 8)}
    assert tuned() == in_steps[8] != in_steps[7]
