"""The inner problem: stopping rules, and the shortcut through the Gram matrix."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.methods.inner import descend
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
