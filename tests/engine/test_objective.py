"""Mini-batches: epochs see every sample once, weights mark what counts, gradients are means over
the real samples.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import Linear, Power, SquareRoot
from coterie.core.vector import Vector
from coterie.models.layers import dense_first
from coterie.models.objective import Learner, Objective

TOTAL = 60
X = jnp.arange(float(TOTAL))[:, None] * jnp.array([[1.0, 0.01]])
Y = jnp.arange(TOTAL) % 3


def objective(
    size: Any, batch: int, sampling: Any = "shuffle", start: Any = 10, key: int = 0, **more: Any
) -> Objective:
    learner = Learner(dense_first, True, "classification", batch, sampling)
    more = {"t": 0, **more}
    return Objective(learner, X, Y, start, size, jax.random.key(key), jax.random.key(99), **more)


batch_of = jax.jit(lambda f, step: f.batch(step))
"""Everything but the batch size and the rule is traced."""


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 45),
    batch=st.sampled_from([1, 4, 7, 50]),
    key=st.integers(0, 1000),
    epochs=st.integers(1, 3),
)
def test_every_epoch_visits_every_sample_exactly_once(
    size: int, batch: int, key: int, epochs: int
) -> None:
    f = objective(size, batch, key=key)
    steps = int(f.steps_per_epoch)
    assert steps == -(-size // batch)
    orders = []
    for epoch in range(epochs):
        batches = [batch_of(f, epoch * steps + i) for i in range(steps)]
        seen = np.concatenate([np.asarray(b.x[:, 0])[np.asarray(b.weight) == 1] for b in batches])
        np.testing.assert_array_equal(np.sort(seen), np.arange(10, 10 + size))
        weights = [float(b.weight.sum()) for b in batches]
        assert weights == [batch] * (steps - 1) + [size - batch * (steps - 1)]
        orders.append(seen.tolist())
        for b in batches:
            np.testing.assert_array_equal(b.y, b.x[:, 0] % 3)
    if size > 20 and epochs > 1:
        assert orders[0] != orders[1], "each epoch has an order of its own"


def test_replace_draws_uniformly_among_the_clients_own_samples() -> None:
    f = objective(7, 4, "replace")
    drawn = np.concatenate([np.asarray(batch_of(f, i).x[:, 0]) for i in range(700)])
    counts = np.bincount(drawn.astype(int), minlength=TOTAL)
    assert counts[:10].sum() == counts[17:].sum() == 0
    assert np.abs(counts[10:17] - 400).max() < 5 * np.sqrt(400)
    assert (np.asarray(batch_of(f, 0).weight) == 1).all()


def test_full_batches_are_everything_and_padding_has_no_weight() -> None:
    f = objective(5, 9, "full")
    b = batch_of(f, 3)
    np.testing.assert_array_equal(b.weight, [1, 1, 1, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(np.asarray(b.x[:5, 0]), np.arange(10, 15))
    assert int(f.steps_per_epoch) == 1


def test_the_gradient_is_the_mean_over_real_samples_plus_l2() -> None:
    rng = np.random.default_rng(0)
    w = Vector(
        {
            "w": jnp.asarray(rng.standard_normal((3, 2)), jnp.float32),
            "b": jnp.asarray(rng.standard_normal(3), jnp.float32),
        }
    )
    padded, exact = objective(5, 9, "full", l2=0.3), objective(5, 5, "full", l2=0.3)
    g = padded.gradient(w, batch_of(padded, 0))
    np.testing.assert_allclose(g.flat(), exact.gradient(w, batch_of(exact, 0)).flat(), rtol=1e-5)
    x, y = np.asarray(X[10:15], np.float64), np.asarray(Y[10:15])
    z = x @ np.asarray(w.tree["w"], np.float64).T + np.asarray(w.tree["b"])
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(5), y] -= 1
    np.testing.assert_allclose(
        g.tree["w"], p.T @ x / 5 + 0.3 * np.asarray(w.tree["w"]), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        g.tree["b"], p.mean(0) + 0.3 * np.asarray(w.tree["b"]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("t", "count"), [(0, 2), (1, 3), (8, 6), (100, 8)])
def test_the_batch_schedule_counts_d_t_samples_rounded_up(t: int, count: int) -> None:
    for sampling in ("shuffle", "replace"):
        f = objective(40, 8, sampling, t=t, batch_schedule=SquareRoot(scale=2.0))
        assert float(batch_of(f, 0).weight.sum()) == count
        assert int(f.steps_per_epoch) == -(-40 // count)
    epoch = objective(40, 8, t=t, batch_schedule=SquareRoot(scale=2.0))
    seen = [
        b.x[:, 0][b.weight == 1]
        for b in (batch_of(epoch, i) for i in range(int(epoch.steps_per_epoch)))
    ]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(10, 50))


def test_a_schedule_below_one_still_counts_one_sample() -> None:
    assert float(objective(40, 8, batch_schedule=Linear(slope=0.01)).batch(0).weight.sum()) == 1


def test_a_schedule_beyond_whole_numbers_counts_the_whole_batch() -> None:
    """(ζ + t)² of Theorem 14 soon is more than 2³¹."""
    asked = Power(scale=1e3, exponent=2.0, shift=1e6)
    assert float(objective(40, 8, batch_schedule=asked).batch(0).weight.sum()) == 8


def test_batches_depend_on_key_and_step_only() -> None:
    same = (
        objective(30, 6),
        dataclasses.replace(objective(30, 6), private_key=jax.random.key(5), l2=3.0),
    )
    np.testing.assert_array_equal(batch_of(same[0], 2).x, batch_of(same[1], 2).x)
    assert not np.array_equal(batch_of(objective(30, 6, key=1), 2).x, batch_of(same[0], 2).x)
    assert not np.array_equal(batch_of(same[0], 3).x, batch_of(same[0], 2).x)


def test_sizes_may_be_traced_and_mapped() -> None:
    sizes, starts = jnp.array([3, 20, 11]), jnp.array([0, 3, 23])
    many = jax.jit(jax.vmap(lambda n, s: objective(n, 6, start=s).batch(1)))(sizes, starts)
    for i in range(3):
        one = batch_of(objective(int(sizes[i]), 6, start=int(starts[i])), 1)
        np.testing.assert_array_equal(
            many.x[i] * many.weight[i][:, None], one.x * one.weight[:, None]
        )
        np.testing.assert_array_equal(many.weight[i], one.weight)


def test_regression_losses_and_scores() -> None:
    learner = Learner(lambda p, x: x, True, "regression", 4, "full")
    outputs, y = jnp.array([[1.0, 2.0, 3.0]]), jnp.array([1.0, 0.0, 5.0])
    np.testing.assert_allclose(learner.sample_losses(outputs, y), [0, 2, 2])
    np.testing.assert_allclose(learner.sample_scores(outputs, y), [0, -4, -4])
    wide = dataclasses.replace(learner, class_major=False)
    np.testing.assert_allclose(wide.sample_losses(jnp.ones((2, 3)), jnp.zeros((2, 3))), [1.5, 1.5])
