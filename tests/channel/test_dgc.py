"""Deep gradient compression against its equations, step by step, and against top-k with error
feedback.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.channel.dgc import DGC, Accumulated
from coterie.channel.sparse import TopK
from coterie.core.errors import InvalidInput

D = 20


def role_key(made: DGC, g: Any) -> tuple[list[Any], Accumulated, list[int]]:
    """What arrives of messages with differences g to base 0, what is kept in the end, and bytes."""

    @jax.jit
    def step(x: Any, private: Any, t: Any) -> Any:
        payload, private = made.compress(x, jnp.zeros(D), private, (), None, t)
        return made.expand(payload, jnp.zeros(D), (), None, t)[0], private, made.size(payload, D)

    private, arrived, sizes = made.private_init(D, jnp.float32), [], []
    for t, row in enumerate(g):
        x, private, size = step(row, private, t)
        arrived.append(np.asarray(x))
        sizes.append(int(size))
    return arrived, jax.tree.map(np.asarray, private), sizes


def differences(seed: int, rounds: int = 7) -> Any:
    return np.random.default_rng(seed).standard_normal((rounds, D)).astype(np.float32)


def test_the_equations_of_the_paper() -> None:
    made, g = DGC(momentum=0.7, clip=3.0, share=0.1, warmup=2), differences(0)
    counts = made.counts(D)
    assert counts == [5, 3, 2]
    u, v, expected = np.zeros(D), np.zeros(D), []
    for t, row in enumerate(g.astype(np.float64)):
        row = row * min(1, 3.0 / np.linalg.norm(row))
        u = 0.7 * u + row
        v = v + u
        mask = np.zeros(D, bool)
        mask[np.argsort(-np.abs(v))[: counts[min(t, 2)]]] = True
        expected.append(np.where(mask, v, 0))
        u, v = np.where(mask, 0, u), np.where(mask, 0, v)
    arrived, kept, sizes = role_key(made, g)
    np.testing.assert_allclose(arrived, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept.u, u, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept.v, v, rtol=1e-5, atol=1e-6)
    assert sizes[0] > sizes[1] > max(sizes[2:])


def test_without_momentum_it_is_top_k_with_error_feedback() -> None:
    g, top, error = differences(1), TopK(k=3), np.zeros(D, np.float32)
    arrived, kept, _ = role_key(DGC(momentum=0.0, k=3, warmup=0), g)
    for row, seen in zip(g, arrived, strict=True):
        meant = row + error
        payload, _ = top.compress(jnp.asarray(meant), jnp.zeros(D), (), (), None, 0)
        expected = np.asarray(top.expand(payload, jnp.zeros(D), (), None, 0)[0])
        np.testing.assert_allclose(seen, expected, rtol=1e-6)
        error = meant - expected
    np.testing.assert_allclose(kept.v, error, rtol=1e-6)


@pytest.mark.parametrize("values", ["full", "int8", "sign"])
def test_what_was_sent_and_what_is_kept_is_what_was_given(values: str) -> None:
    """Lossy values too: what rounding cuts off stays with the sender.

    The first three messages are of the warm-up, with padding.
    """
    g = differences(2)
    arrived, kept, _ = role_key(DGC(momentum=0.0, share=0.05, warmup=3, values=values), g)
    np.testing.assert_allclose(
        np.sum(arrived, axis=0) + kept.v, g.sum(axis=0), rtol=1e-5, atol=1e-5
    )
    assert [np.count_nonzero(a) for a in arrived] == [*DGC(share=0.05, warmup=3).counts(D), 1, 1, 1]


def test_the_warm_up_is_the_paper_s() -> None:
    """25%, 6.25%, 1.5625%, 0.4% and then 0.1%."""
    counts = DGC(share=0.001, warmup=4).counts(10**6)
    np.testing.assert_allclose(counts, [250_000, 62_500, 15_625, 4_000, 1_000], rtol=0.02)
    assert counts[0] == 250_000
    assert counts[-1] == 1_000
    assert DGC(share=0.001, warmup=0).counts(10**6) == [1_000]
    assert DGC(share=0.5, warmup=3).counts(100) == [50] * 4
    assert DGC(k=10, warmup=2).counts(1000) == [250, 50, 10]


def test_clipping() -> None:
    g = np.zeros((1, D), np.float32)
    g[0, :2] = [30.0, -40.0]
    arrived, _, _ = role_key(DGC(clip=5.0, k=2, warmup=0), g)
    np.testing.assert_allclose(arrived[0][:2], [3.0, -4.0], rtol=1e-6)
    arrived, _, _ = role_key(DGC(clip=500.0, k=2, warmup=0), g)
    np.testing.assert_allclose(arrived[0][:2], [30.0, -40.0], rtol=1e-6)


def test_a_stage_after_the_warm_up_is_refused() -> None:
    made = DGC(share=0.1, warmup=2, indices="raw")
    payload, _ = made.compress(
        jnp.ones(D), jnp.zeros(D), made.private_init(D, jnp.float32), (), None, 2
    )
    wire = bytearray(made.encode(payload, D, np.float32))
    assert wire[0] >> 6 == 2
    wire[0] |= 0b11000000
    with pytest.raises(InvalidInput, match="stage 3"):
        made.decode(bytes(wire), D, np.float32)
