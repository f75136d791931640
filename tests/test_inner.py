"""The inner problem: stopping rules, Nesterov's steps, and the shortcut through the Gram matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.methods.inner import descend, nesterov
from coterie.models.build import build_model


def test_without_a_tolerance_all_steps_are_taken() -> None:
    x, count = descend(lambda x: x, jnp.array([1.0]), 0.5, 3)
    assert (float(x[0]), count) == (0.125, 3)


def test_it_stops_at_the_first_small_gradient_and_counts_it() -> None:
    # x halves: gradients 1, 0.5, 0.25, 0.125; the squared norm 0.0625 of the third is small enough,
    # so two steps and three gradients.
    x, count = descend(lambda x: x, jnp.array([1.0]), 0.5, 10, 0.0626)
    assert (float(x[0]), int(count)) == (0.25, 3)


def test_the_cap_holds_and_takes_as_many_gradients_as_plain_steps() -> None:
    x, count = descend(lambda x: x, jnp.array([1.0]), 0.5, 4, 0.0)
    assert (float(x[0]), int(count)) == (0.0625, 4)


def accelerated(c: np.ndarray, lr: float, steps: int, m: list[float]) -> np.ndarray:
    """Nesterov's iterates on ½ Σ c x², all from 1."""
    x = y = np.ones_like(c)
    for i in range(steps):
        new = y - lr * c * y
        x, y = new, new + m[i] * (new - x)
    return x


@pytest.mark.parametrize("growing", [False, True])
def test_nesterovs_steps(growing: bool) -> None:
    c, lr, steps = np.array([1.0, 0.3, 0.01]), 0.9, 7
    m = [i / (i + 3) if growing else 0.6 for i in range(steps)]
    momentum = (lambda i: i / (i + 3.0)) if growing else (lambda i: 0.6)
    with jax.enable_x64(True):
        x, count = descend(lambda x: c * x, jnp.ones(3), lr, steps, momentum=momentum)
        capped, as_many = descend(lambda x: c * x, jnp.ones(3), lr, steps, 0.0, momentum=momentum)
    np.testing.assert_allclose(x, accelerated(c, lr, steps, m), rtol=1e-13)
    np.testing.assert_allclose(capped, x, rtol=1e-13)
    assert (count, int(as_many)) == (steps, steps)


def test_nesterov_stops_where_the_gradient_is_small() -> None:
    """‖∇h‖ ≤ ν of what is returned, which is what the papers ask for."""
    c = np.array([1.0, 0.01])
    with jax.enable_x64(True):
        x, count = descend(lambda x: c * x, jnp.ones(2), 1.0, 500, 1e-12, momentum=lambda i: 0.8)
    assert np.sum((c * np.asarray(x)) ** 2) <= 1e-12
    assert int(count) < 500


def gradients_needed(kappa: float, accelerate: bool) -> int:
    c = np.array([1.0, 1 / kappa])
    momentum = (lambda i: nesterov(1 / kappa)) if accelerate else None
    with jax.enable_x64(True):
        return int(descend(lambda x: c * x, jnp.ones(2), 1.0, 10**6, 1e-20, momentum=momentum)[1])


def test_nesterov_needs_the_root_of_kappa() -> None:
    """K = O(κ log(1/ν)) gradients of plain descent, O(√κ log(1/ν)) of Nesterov's (pFedMe, (8))."""
    log = np.log(1e10)
    for kappa in (100.0, 2500.0):
        plain, fast = gradients_needed(kappa, False), gradients_needed(kappa, True)
        assert 0.5 * kappa * log < plain < 1.1 * kappa * log
        assert 0.5 * np.sqrt(kappa) * log < fast < 2 * np.sqrt(kappa) * log


@pytest.mark.parametrize("momentum", [None, 0.3])
@pytest.mark.parametrize("name", ["pfedme", "lp-proj-2"])
def test_the_bound_on_inner_steps_is_sharp(name: str, momentum: float | None) -> None:
    """A little below it 2,000 steps shrink the steepest direction, a little above they blow it
    up.
    """
    more = {"dsub": 2} if name == "lp-proj-2" else {}
    options = {"lam": 1.0, "personal_lr": 0.1, "inner_solver": "nesterov", **more}
    method: Any = coterie.get_method(name, {**options, "inner_momentum": momentum})
    least = 0.1 if name == "pfedme" else None
    bound, rule = float(method.steepest(least)), method.momentum_at(0, least)
    with jax.enable_x64(True):
        for times, grows in ((0.97, False), (1.05, True)):
            x, _ = descend(lambda x: x, jnp.ones(1), times * bound, 2000, momentum=rule)
            assert (not abs(float(x[0])) < 1) == grows


@pytest.mark.parametrize("tolerance", [None, 1e-11])
def test_pfedme_by_nesterovs_steps_reaches_its_fixed_point(tolerance: float | None) -> None:
    """h has the curvatures b_k + λ between 1.2 and 2.7, with λ known: 25 steps are exact. w and θ_k
    are the closed forms of pFedMe.
    """
    fed = coterie.load(
        "linear", clients=4, samples=6, dimension=3, scale=0.5, scale_last=2.0, spread=1.0
    )
    b, best, lam = fed.facts["b"][:, None], fed.facts["least_squares"], 0.7
    method = coterie.PFedMe(
        lam=lam,
        lr=0.3,
        personal_lr=1 / (lam + 2),
        local_rounds=1,
        inner_steps=60 if tolerance else 25,
        tolerance=tolerance,
        inner_solver="nesterov",
    )
    given = {"rounds": 250, "eval_every": 250, "sampling": "full", "precision": "float64"}
    found = coterie.simulate(method, fed, "linear", **given).simulator
    w = (b / (b + lam) * best).sum(0) / (b / (b + lam)).sum()
    theta = (b * best + lam * w) / (b + lam)
    for view, wanted in (("global", np.broadcast_to(w, (4, 3))), ("personal", theta)):
        got = np.asarray(found.all_models(view).leaves[0]).reshape(4, 3)
        np.testing.assert_allclose(got, wanted, atol=1e-9 * np.abs(wanted).max())


def test_momentum_without_nesterov_is_refused() -> None:
    with pytest.raises(coterie.InvalidInput, match="inner_momentum"):
        coterie.get_method("pfedme", {"inner_momentum": 0.5})


@pytest.mark.parametrize(
    "steps", [5, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (2, 12))]
)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("mlr", {"l2": 0.05}, marks=pytest.mark.slow),
        ("mlp", {"hidden": "7", "l2": 0.01}),
        ("linear", {"l2": 0.1}),
    ],
    ids=["mlr", "mlp", "linear"],
)
def test_steps_through_the_gram_matrix_are_plain_steps(
    name: str, options: dict, steps: int
) -> None:
    """Ragged clients smaller than a batch included; with and without intercept; unrolled and
    looped.
    """
    fed = (
        coterie.load("linear", clients=3, dimension=4, samples=9)
        if name == "linear"
        else coterie.load("digits", clients=4)
    )
    model = build_model(coterie.get_model(name, options), fed.shape)
    assert model.input_layer is not None
    method = coterie.PFedMe(
        lam=0.7, lr=0.2, personal_lr=0.1, decay=0.02, local_rounds=3, inner_steps=steps
    )
    run = {"rounds": 2, "eval_every": 2, "precision": "float64", "batch_size": 40}
    quick = coterie.simulate(method, fed, model, **run).simulator.all_models().flat()
    plain = (
        coterie.simulate(method, fed, dataclasses.replace(model, input_layer=None), **run)
        .simulator.all_models()
        .flat()
    )
    np.testing.assert_allclose(quick, plain, rtol=1e-11, atol=1e-13)
    assert quick.dtype == np.float64
    assert not jax.config.jax_enable_x64
