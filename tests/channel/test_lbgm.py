"""Look-back multipliers: when one number is enough, and how much it may lose."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel.ends import Sender
from coterie.channel.lbgm import LBGM
from coterie.channel.link import star_down
from coterie.core.errors import InvalidInput

D = 12


@jax.jit
def send(made: LBGM, x: Any, base: Any, shared: Any) -> Any:
    payload, _ = made.compress(x, base, (), shared, None, 0)
    return *made.expand(payload, base, shared, None, 0), payload, made.size(payload, D)


def drift(seed: int, rounds: int) -> Any:
    """Differences whose direction turns slowly."""
    rng = np.random.default_rng(seed)
    return (
        np.cumsum(rng.standard_normal((rounds, D)) * 0.5, axis=0) + rng.standard_normal(D)
    ).astype(np.float32)


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.5, 1.0])
def test_the_error_is_at_most_delta(delta: float) -> None:
    made, shared, whole = LBGM(threshold=delta), jnp.zeros(D), []
    base = np.float32(np.random.default_rng(0).standard_normal(D))
    for g in drift(1, 12):
        x = base + g
        last = np.asarray(shared, np.float64)
        arrived, shared, payload, size = send(made, x, base, shared)
        exact = x.astype(np.float64) - base
        assert (
            np.sum((np.asarray(arrived) - x.astype(np.float64)) ** 2)
            <= delta * np.sum(exact**2) + 1e-9
        )
        whole.append(bool(payload.fresh))
        assert int(size) == (1 + 4 * D if whole[-1] else 5)
        if whole[-1]:
            assert np.asarray(arrived).tobytes() == x.tobytes()
            assert np.array_equal(np.asarray(shared), x - base)
            assert (
                not np.any(last)
                or 1 - (exact @ last) ** 2 / (exact @ exact) / (last @ last) > delta - 1e-5
            )
        else:
            assert np.array_equal(np.asarray(shared), last)
            assert float(payload.multiplier) == pytest.approx(
                exact @ last / (last @ last), rel=1e-4
            )
            np.testing.assert_allclose(
                np.asarray(arrived), base + float(payload.multiplier) * last, rtol=1e-5, atol=1e-6
            )
    assert whole[0]
    assert sum(whole) == {0.0: 12, 1.0: 1}.get(delta, sum(whole))
    assert delta in (0.0, 1.0) or 1 < sum(whole) < 12  # both ways are taken


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_directions_are_told_apart_at_any_scale(scale: float) -> None:
    """Squares of small numbers vanish in float32, those of large ones overflow."""
    made, one, other = LBGM(threshold=0.2), np.zeros(D, np.float32), np.zeros(D, np.float32)
    one[:2], other[1:3] = scale, scale
    _, shared, _, _ = send(made, one, np.zeros(D, np.float32), jnp.zeros(D))
    assert bool(send(made, other, np.zeros(D, np.float32), shared)[2].fresh)
    arrived, _, payload, _ = send(made, -3 * one, np.zeros(D, np.float32), shared)
    assert not bool(payload.fresh)
    np.testing.assert_allclose(np.asarray(arrived), -3 * one, rtol=1e-6)


def test_nothing_new_takes_one_number_after_the_first_message() -> None:
    made, base = LBGM(), np.float32(np.random.default_rng(2).standard_normal(D))
    arrived, shared, payload, _ = send(made, base, base, jnp.zeros(D))
    assert bool(payload.fresh)
    _, shared, payload, _ = send(made, base + 1, base, shared)
    assert bool(payload.fresh)
    arrived, _, payload, _ = send(made, base, base, shared)
    assert not bool(payload.fresh)
    assert np.asarray(arrived).tobytes() == base.tobytes()


def test_lossy_values_are_looked_back_on_as_they_arrived() -> None:
    made, base = LBGM(values="int4"), np.float32(np.random.default_rng(3).standard_normal(D))
    arrived, shared, payload, size = send(made, base + drift(4, 1)[0], base, jnp.zeros(D))
    assert bool(payload.fresh)
    assert int(size) == 1 + 2 + D // 2
    assert np.array_equal(np.asarray(base + shared), np.asarray(arrived))
    assert np.any(np.asarray(shared) != drift(4, 1)[0])


def test_divergence_is_not_hidden() -> None:
    _, shared, _, _ = send(LBGM(), np.ones(D, np.float32), np.zeros(D, np.float32), jnp.zeros(D))
    x = np.ones(D, np.float32)
    x[0] = np.nan
    arrived, _, payload, _ = send(LBGM(), x, np.zeros(D, np.float32), shared)
    assert bool(payload.fresh)
    assert np.isnan(np.asarray(arrived)[0])


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\x02" + bytes(4), "02"), (b"\x00" + bytes(5), "6 bytes"), (b"\x00\x00\x00\x80\x7f", "inf")],
)
def test_garbage_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        LBGM().decode(data, D, np.float32)


def test_a_whole_copy_is_billed_as_long_as_it_is(ragged: Federation) -> None:
    """It brings the look-back vector along: a client that missed messages needs both.

    With δ = 0 every message is whole, so that a copy is cheaper than two of them.
    """
    channel = LBGM(threshold=0.0, down=True)
    result = coterie.simulate(
        coterie.FedAvg(local_steps=1), ragged, channel=channel, rounds=8, eval_every=8, cohort=2
    )
    hub = result.simulator.hub_state
    sender = Sender(star_down(channel), channel, hub.method_state, hub.link)
    whole, each = len(sender.resend()), 2 + 1 + 15 * 4
    assert whole == 2 + 2 * 15 * 4
    last, billed = np.full(5, -1), []
    for t, client, _, down, _ in result.ledger.rows().tolist():
        assert down == min((t - last[client]) * each, whole)
        billed.append(down)
        last[client] = t
    assert {each, whole} == set(billed)
