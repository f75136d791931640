"""The delta channel with coordinates in turn: who is sent when, what arrives, and the same in
compiled rounds and over a wire.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel import get_channel
from coterie.channel.ends import Receiver, Sender
from coterie.channel.link import HEADER, LinkKind, Outgoing
from coterie.engine.reference import simulate_slowly

OVER_COPIES = LinkKind(copies=True)


def turns(**more: Any) -> Any:
    return get_channel("delta", {"pick": "cyclic", **more})


@pytest.mark.parametrize(("d", "k"), [(1, 1), (7, 2), (15, 5), (100, 33), (500, 67)])
def test_everybody_has_a_turn_in_so_many_rounds(d: int, k: int) -> None:
    """In ⌈d/k⌉ rounds every coordinate is sent once, but for those that fill up the last round;
    then it begins again.
    """
    c, n = turns(k=k), -(-d // k)
    chosen = np.asarray(jax.vmap(lambda t: c.in_cycle(t, d))(jnp.arange(2 * n)))
    assert all(len(set(row)) == k for row in chosen.tolist())
    counts = np.bincount(chosen[:n].reshape(-1), minlength=d)
    assert counts.min() == 1
    assert counts.sum() == n * k
    np.testing.assert_array_equal(chosen[:n], chosen[n:])


def test_a_turn_depends_on_the_round_alone_and_the_order_is_part_of_the_wire_format() -> None:
    c, x = turns(k=3, values="full"), jnp.arange(1.0, 11.0)
    for t in range(4):
        payloads = [
            c.compress(x, jnp.zeros(10), (), (), key, t)[0] for key in (None, jax.random.key(1))
        ]
        assert payloads[0].indices == ()
        np.testing.assert_array_equal(payloads[0].values.codes, payloads[1].values.codes)
        np.testing.assert_array_equal(payloads[0].values.codes, x[c.in_cycle(t, 10)])
    assert [np.asarray(c.in_cycle(t, 10)).tolist() for t in range(2)] == ORDER
    assert sorted(np.asarray(c.in_cycle(2**31 - 1, 10)).tolist()) == sorted(
        np.asarray(c.in_cycle((2**31 - 1) % 4, 10)).tolist()
    )


ORDER = [[7, 8, 9], [4, 3, 5]]


def test_coordinates_take_no_bytes() -> None:
    """MLR on HAR, d = 3,372: 67 numbers of four bits, a scale and a version."""
    c = turns(share=0.02, values="int4")
    sender = Sender(OVER_COPIES, c, jnp.zeros(3372))
    assert len(sender.send(Outgoing(jnp.ones(3372)))[0]) == HEADER + 2 + 34


def test_what_stands_still_arrives_whole_after_a_cycle_and_both_ends_agree() -> None:
    target = jnp.asarray(np.random.default_rng(0).standard_normal(16), jnp.float32)
    c = turns(k=5, values="full")
    sender, receiver = (
        Sender(OVER_COPIES, c, jnp.zeros(16)),
        Receiver(OVER_COPIES, c, jnp.zeros(16)),
    )
    for t in range(4):
        out = Outgoing(target, t=t)
        got = receiver.receive(sender.send(out)[0], out)
        assert np.asarray(got).tobytes() == np.asarray(sender.link.public.copy).tobytes()
        assert bool(jnp.all(got == target)) == (t == 3)


def flat(result: Any) -> Any:
    return np.concatenate(
        [leaf.reshape(len(leaf), -1) for leaf in result.simulator.all_models().leaves], axis=1
    )


@pytest.mark.parametrize(
    ("method", "cohort"),
    [
        (coterie.FedU(lr=0.1, local_steps=2, eta=0.3, neighbours="all"), 3),
        pytest.param(coterie.DFedU(lr=0.1, local_steps=2, eta=0.3), None, marks=pytest.mark.slow),
        pytest.param(
            coterie.PFedMe(lr=0.1, local_rounds=2, inner_steps=2), 3, marks=pytest.mark.slow
        ),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_compiled_rounds_equal_one_client_at_a_time_over_real_bytes(
    method: coterie.Method, cohort: int | None, ragged: Federation
) -> None:
    options: dict[str, Any] = {
        "rounds": 4,
        "eval_every": 2,
        "batch_size": 4,
        "precision": "float64",
        "cohort": cohort,
    }
    ring, c = coterie.graph.ring(5, 0.7), turns(k=4, values="int4")
    fast, slow = (
        run(method, ragged, graph=ring, channel=c, **options)
        for run in (coterie.simulate, simulate_slowly)
    )
    np.testing.assert_allclose(flat(fast), flat(slow), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(fast.ledger.rows(), slow.ledger.rows())


def test_with_nothing_cut_off_it_is_the_method_bit_for_bit(ragged: Federation) -> None:
    method, ring = coterie.FedU(lr=0.1, local_steps=2, eta=0.3), coterie.graph.ring(5, 0.7)
    whole, plain = (
        coterie.simulate(method, ragged, graph=ring, channel=c, rounds=3)
        for c in (turns(share=1.0, values="full"), "plain")
    )
    assert flat(whole).tobytes() == flat(plain).tobytes()


def test_in_a_star_only_the_coordinates_of_the_round_move(ragged: Federation) -> None:
    """A client's update of a coordinate counts in the round that sends it, and not again until the
    next one.
    """
    c, method = turns(k=4, values="full"), coterie.FedAvg(lr=0.1, local_steps=2)
    hubs = [
        np.asarray(coterie.simulate(method, ragged, channel=c, rounds=rounds).simulator.hub.flat())
        for rounds in (1, 2, 3)
    ]
    for t, (before, after) in enumerate(pairwise(hubs), 1):
        assert set(np.flatnonzero(np.abs(after - before) > 1e-6)) == set(
            np.asarray(c.in_cycle(t, len(after))).tolist()
        )


@pytest.mark.parametrize(
    ("name", "longer"), [("dfedu", 1), pytest.param("pfedme", 10, marks=pytest.mark.slow)]
)
def test_a_tenth_in_turn_ends_near_the_whole(name: str, longer: int) -> None:
    """What is old must not be applied in every round until it is renewed: that goes wrong within a
    few cycles of ten rounds.

    A star takes as much longer as a cycle has rounds: a coordinate of the hub's model moves once in
    a cycle.
    """
    fed, method = coterie.load("digits", clients=10), coterie.get_method(name)
    graph = coterie.graph.complete(10) if name == "dfedu" else None

    def score(channel: Any, rounds: int) -> float:
        run = coterie.simulate(
            method,
            fed,
            graph=graph,
            channel=channel,
            rounds=rounds,
            eval_every=rounds,
            batch_size=20,
        )
        return float(np.nanmean(run.client_scores()))

    assert score(turns(share=0.1, values="int4"), 60 * longer) > score("plain", 60) - 0.03
