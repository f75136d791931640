"""What sparse messages, rotations and sketches lose, against the bounds in their docstrings.

Statistical bounds are five standard errors wide.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.channel.base import CHANNELS, get_channel
from coterie.channel.link import LinkKind, Outgoing, open_link, transmit
from coterie.channel.sketch import CountSketch
from coterie.channel.sparse import RandomK, TopK
from coterie.channel.subspace import RandomSubspace, hadamard, random_signs
from coterie.core.errors import InvalidInput

D = 24


def sent(made: Any, x: Any, base: Any, key: Any, t: Any = 0) -> Any:
    payload, _ = made.compress(x, base, (), (), key, t)
    return made.expand(payload, base, (), key, t)[0]


@functools.cache
def many_keys(made: Any, count: int) -> Any:
    """x̂ under many keys, in float64."""
    draw = jax.jit(
        lambda x, base: jax.vmap(lambda key: sent(made, x, base, key))(
            jax.random.split(jax.random.key(3), count)
        )
    )
    return lambda x, base: np.asarray(draw(np.float32(x), np.float32(base)), np.float64)


def pair(seed: int, d: int = D) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(d)
    return np.float32(base + rng.standard_normal(d) ** 3), np.float32(base)


def squared(v: Any) -> Any:
    return np.sum(np.float64(v) ** 2, axis=-1)


# -- top-k -----------------------------------------------------------------------------------------


def test_top_k_sends_the_largest_differences_and_is_a_contraction() -> None:
    made = TopK(k=5)
    send = jax.jit(functools.partial(sent, made, key=None))
    for seed in range(20):
        x, base = pair(seed)
        arrived = np.asarray(send(x, base))
        largest = np.argsort(-np.abs(x - base))[:5]
        expected = base.copy()
        expected[largest] = x[largest]
        assert arrived.tobytes() == expected.tobytes()
        assert squared(x - arrived) <= (1 - 5 / D) * squared(x - base)


def test_equal_differences_meet_the_bound_of_top_k() -> None:
    base = jnp.zeros(8)
    assert squared(1 - sent(TopK(k=3), jnp.ones(8), base, None)) == (1 - 3 / 8) * 8


@pytest.mark.parametrize(
    "made",
    [
        TopK(share=1.0),
        RandomK(share=1.0),
        get_channel("plain"),
        get_channel("delta", {"share": 1.0, "values": "full"}),
    ],
)
def test_lossless_channels_return_the_message_to_the_bit(made: Any) -> None:
    x, base = jnp.asarray([1e-9, -0.0, 3e38, jnp.pi]), jnp.asarray([1e9, 1.0, -3e38, jnp.e])
    assert made.lossless
    assert np.asarray(sent(made, x, base, jax.random.key(0))).tobytes() == np.asarray(x).tobytes()
    assert (
        np.asarray(base + (x - base)).tobytes() != np.asarray(x).tobytes()
    )  # so this is no matter of course


@pytest.mark.parametrize(
    "made",
    [
        TopK(share=1.0, values="int8"),
        TopK(share=0.99),
        TopK(k=3),
        get_channel("delta"),
        RandomK(share=1.0, scaled=True, memory="none"),
    ],
)
def test_other_channels_do_not_claim_to_be_lossless(made: Any) -> None:
    assert not made.lossless


def test_counts() -> None:
    assert [TopK(share=0.01).count(d) for d in (1, 10, 150, 250, 1000)] == [1, 1, 2, 2, 10]
    assert [TopK(k=7).count(d) for d in (3, 7, 100)] == [3, 7, 7]
    assert [RandomSubspace(k=7).count(d) for d in (1, 3, 5, 7, 100)] == [1, 4, 7, 7, 7]


def test_the_delta_channel_takes_two_bytes_a_coordinate() -> None:
    """MLR on MNIST, d = 7,850: 78 coordinates at 8 bits for the value and about 8 for the gap."""
    made, x = get_channel("delta"), np.random.default_rng(0).standard_normal(7850)
    payload, _ = made.compress(jnp.asarray(x, jnp.float32), jnp.zeros(7850), (), (), None, 0)
    assert 2 + 78 * 1.9 < len(made.encode(payload, 7850, np.float32)) < 2 + 78 * 2.1


# -- random-k --------------------------------------------------------------------------------------


def test_random_k_draws_every_coordinate_alike() -> None:
    made = RandomK(k=6)
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda key: made.draw(key, D)))(jax.random.split(jax.random.key(0), 4000))
    )
    assert np.all(np.diff(drawn, axis=1) > 0)
    assert drawn.min() == 0
    assert drawn.max() == D - 1
    share = np.bincount(drawn.reshape(-1), minlength=D) / 4000
    assert np.all(np.abs(share - 6 / D) < 5 * np.sqrt(6 / D * (1 - 6 / D) / 4000))


def test_random_k_loses_what_it_should_and_is_unbiased_when_scaled() -> None:
    x, base = pair(1)
    v, n, p = np.float64(x) - base, 4000, 6 / D
    arrived = many_keys(RandomK(k=6), n)(x, base)
    kept = np.isclose(arrived, x, rtol=0, atol=0)
    assert np.all(kept.sum(axis=1) == 6)
    loss = squared(arrived - x)
    assert abs(loss.mean() - (1 - p) * squared(v)) < 5 * loss.std() / np.sqrt(n)
    scaled = many_keys(RandomK(k=6, scaled=True, memory="none"), n)(x, base)
    error = np.abs(scaled.mean(axis=0) - x)
    assert np.all(error < 5 * np.abs(v) * np.sqrt((1 - p) / p / n) + 1e-5)
    assert np.any(
        np.abs(arrived.mean(axis=0) - x) > 5 * np.abs(v) * np.sqrt((1 - p) / p / n) + 1e-5
    )  # without scaling it is biased


# -- rotations -------------------------------------------------------------------------------------


def test_the_transform_is_that_of_the_matrix() -> None:
    h = np.array([[1.0]])
    for _ in range(4):
        h = np.block([[h, h], [h, -h]])
    v = np.random.default_rng(0).integers(-9, 9, 16)
    assert np.asarray(hadamard(jnp.asarray(v, jnp.float32))).tolist() == (h @ v).tolist()


def test_signs_are_balanced() -> None:
    signs = np.asarray(random_signs(jax.random.key(1), 10_001, jnp.float32))
    assert set(signs) == {-1.0, 1.0}
    assert abs(signs.mean()) < 5 / np.sqrt(10_001)


@pytest.mark.parametrize("d", [16, 21])
def test_a_subspace_is_a_contraction(d: int) -> None:
    """Always shorter; on average by 1 − k/n for a power of two and by more otherwise (what falls on
    the padding is no loss).
    """
    x, base = pair(2, d)
    made, n = RandomSubspace(k=5), 2000
    loss = squared(many_keys(made, n)(x, base) - x)
    total = squared(np.float64(x) - base)
    assert np.all(loss <= total * (1 + 1e-5))
    expected, slack = (1 - 5 / made.padded(d)) * total, 5 * loss.std() / np.sqrt(n)
    assert loss.mean() < expected + slack
    if d == 16:
        assert loss.mean() > expected - slack


def test_the_whole_rotation_loses_nothing_but_rounding() -> None:
    x, base = pair(3, 16)
    np.testing.assert_allclose(
        many_keys(RandomSubspace(k=16), 3)(x, base), np.tile(x, (3, 1)), rtol=1e-5, atol=1e-5
    )


# -- sketches --------------------------------------------------------------------------------------


def test_the_error_of_a_sketch_is_within_its_bound() -> None:
    """One row: unbiased, variance (‖v‖² − vᵢ²)/c.

    The median of five: beyond √(3/c)‖v‖ with probability at most e^(−5/18).
    """
    v = jnp.asarray(np.random.default_rng(4).standard_normal(40), jnp.float32)
    c, rows = 10, 1000
    made = CountSketch(rows=rows, columns=c / 40)
    error = np.asarray(jax.jit(lambda v: made.rows_say(made.table(v, 0), 40, 0) - v)(v), np.float64)
    variance = (float(v @ v) - np.asarray(v) ** 2) / c
    per_row = (error**2 / variance).mean(axis=1)
    assert abs(per_row.mean() - 1) < 5 * per_row.std() / np.sqrt(rows)
    bias = (error / np.sqrt(variance)).mean(axis=1)
    assert abs(bias.mean()) < 5 * bias.std() / np.sqrt(rows)
    limit = np.sqrt(3 / c * float(v @ v))
    beyond = np.mean(np.abs(np.median(error.reshape(-1, 5, 40), axis=1)) > limit)
    assert beyond < min(
        np.exp(-5 / 18), np.mean(np.abs(error) > limit)
    )  # and a median is better than one row


def test_estimates_are_medians() -> None:
    for rows in (1, 3, 4, 7, 20):
        made, v = CountSketch(rows=rows, columns=0.5), jnp.arange(8.0)
        said, seen = jax.jit(
            lambda v, made=made: (
                made.rows_say(made.table(v, 3), 8, 3),
                made.estimates(made.table(v, 3), 8, 3),
            )
        )(v)
        np.testing.assert_allclose(seen, np.median(said, axis=0), rtol=1e-6)


def test_heavy_coordinates_are_found() -> None:
    rng = np.random.default_rng(5)
    v = 0.01 * rng.standard_normal(200)
    v[[3, 77, 150]] = [5.0, -4.0, 3.0]
    x, base = jnp.asarray(1 + v, jnp.float32), jnp.ones(200)
    for made in (
        CountSketch(rows=5, columns=0.5, k=3),
        CountSketch(rows=5, columns=0.5, k=3, exact=False, memory="none"),
    ):
        arrived = np.asarray(sent(made, x, base, None))
        assert np.flatnonzero(arrived - 1).tolist() == [3, 77, 150]
        np.testing.assert_allclose(
            arrived[[3, 77, 150]], x[jnp.asarray([3, 77, 150])], atol=0 if made.exact else 0.05
        )


def test_what_a_sketch_misses_is_made_up_for() -> None:
    """Numbers without any that stand out, sent over and over: what is left stays bounded with true
    numbers, and grows with estimates alone.
    """
    v = jnp.asarray(np.random.default_rng(7).standard_normal(500), jnp.float32)

    def left_after(made: CountSketch, rounds: int) -> float:
        def once(left: Any, t: Any) -> tuple[Any, None]:
            x = left + v
            return x - sent(made, x, jnp.zeros(500), None, t), None

        return float(
            jnp.linalg.norm(
                jax.jit(lambda: jax.lax.scan(once, jnp.zeros(500), jnp.arange(rounds))[0])()
            )
            / jnp.linalg.norm(v)
        )

    true, estimates = (
        CountSketch(columns=0.05, k=25),
        CountSketch(columns=0.05, k=25, exact=False, memory="none"),
    )
    assert left_after(true, 300) < 500 / 25 < 1e6 < left_after(estimates, 50)
    with pytest.raises(
        InvalidInput,
        match=r'sketch.exact is false, but then sketch.memory must be "none", not .errors.',
    ):
        CountSketch(exact=False)


def test_a_sketch_is_linear_and_another_one_every_round() -> None:
    made, rng = CountSketch(rows=3, columns=0.5), np.random.default_rng(6)
    a, b = (jnp.asarray(rng.integers(-50, 50, 40), jnp.float32) for _ in range(2))
    assert np.array_equal(made.table(a + b, 5), made.table(a, 5) + made.table(b, 5))
    assert not np.array_equal(made.table(a, 5), made.replace(hash_seed=1).table(a, 5))
    assert not np.array_equal(made.table(a, 5), made.table(a, 6))


# -- error feedback --------------------------------------------------------------------------------

REMEMBERING = {
    "plain": {"values": "sign"},
    "top-k": {"k": 10},
    "random-k": {"k": 10},
    "delta": {"k": 10},
    "delta, in turn": {"k": 10, "pick": "cyclic", "values": "int4"},
    "qsgd": {"bucket": 64, "levels": 16},
    "sketch": {"k": 10, "columns": 0.05},
    "subspace": {"k": 10},
}


def test_every_channel_that_may_have_a_memory_is_tried() -> None:
    def may(name: str) -> bool:
        try:
            return (
                get_channel(name, {**REMEMBERING.get(name, {}), "memory": "errors"}).memory
                == "errors"
            )
        except InvalidInput:
            return False  # it has a memory of its own

    assert {name.split(",")[0] for name in REMEMBERING} == {name for name in CHANNELS if may(name)}


@pytest.mark.parametrize("name", REMEMBERING)
def test_what_is_kept_for_later_levels_off(name: str) -> None:
    """The same update over and over, none of its numbers standing out: what is left to send grows
    at first, and then no more.
    """
    d, rounds = 200, 4000
    made = get_channel(name.split(",")[0], {**REMEMBERING[name], "memory": "errors"})
    update = jnp.asarray(np.random.default_rng(8).standard_normal(d), jnp.float32)
    kind, nothing = LinkKind(errors=True, moving=True), jnp.zeros(d)

    def once(link: Any, t: Any) -> tuple[Any, Any]:
        key = jax.random.fold_in(jax.random.key(1), t)
        link = transmit(kind, made, link, Outgoing(update, nothing, key, t)).link
        return link, jnp.linalg.norm(link.private.error)

    left = np.asarray(
        jax.jit(lambda: jax.lax.scan(once, open_link(kind, made, nothing), jnp.arange(rounds))[1])()
    )
    assert np.isfinite(left).all()
    assert left[rounds // 2 :].mean() < 1.25 * left[rounds // 4 : rounds // 2].mean()
    assert left.max() < 2 * d / 10 * float(jnp.linalg.norm(update))
