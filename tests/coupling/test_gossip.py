"""Peers that find their kin by gossip: the matching, one peer against all at once, what is found,
and what it costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput
from coterie.coupling.learnt import Evidence, get_rule, gossip
from coterie.engine.slow_gossip import gossip_slowly


def kin(**options: Any) -> Any:
    return get_rule("kin", {"ties": "both", "gossip": 8, **options})


def clusters(n: int, count: int, numbers: int = 64, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    of = rng.integers(0, count, n)
    sketches = rng.normal(size=(count, numbers))[of] + rng.normal(size=(n, numbers))
    return sketches.astype(np.float32).astype(np.float64), of


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 50), st.integers(0, 9), st.integers(0, 2**31 - 1))
def test_everybody_has_a_partner_but_one_at_most(n: int, t: int, phase: int, seed: int) -> None:
    pairs = gossip.partners(seed, t, phase, n)
    np.testing.assert_array_equal(pairs[pairs], np.arange(n))
    assert (pairs == np.arange(n)).sum() == n % 2


def test_phases_rounds_and_seeds_pair_differently() -> None:
    drawn = [gossip.partners(*one, 20) for one in ((0, 5, 0), (0, 5, 1), (0, 6, 0), (1, 5, 0))]
    assert len({tuple(pairs) for pairs in drawn}) == 4
    met = np.zeros((9, 9), int)
    for phase in range(400):
        met[np.arange(9), gossip.partners(3, 5, phase, 9)] += 1
    assert met.min() > 20  # of 400/9 that are expected, also of those that sit out


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 100])
def test_after_the_last_stride_everybody_has_heard_of_everybody(n: int) -> None:
    heard = [{k} for k in range(n)]
    for stride in gossip.strides(n):
        heard = [heard[k] | heard[(k - stride) % n] for k in range(n)]
    assert all(len(one) == n for one in heard)
    assert len(gossip.strides(n)) == int(np.ceil(np.log2(n)))


@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize(("n", "numbers"), [(1, 5), (2, 64), (9, 3), (40, 64), (41, 100)])
def test_one_peer_after_the_other_gives_the_same_to_the_last_bit(
    n: int, numbers: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graph and bill; also when pairs are compared in small groups."""
    sketches, _ = clusters(n, 3, numbers)
    sketches = np.where(sketches > 0, 1.0, -1.0) if bits == 1 else sketches
    rule, evidence = kin(bits=bits, sketch=numbers), Evidence(sketches, np.ones(n, bool), bits)
    slow, up, down = gossip_slowly(rule, sketches, 4, t=5, size=rule.sketch_bytes(1000))
    for at_once in (1 << 19, 7):
        monkeypatch.setattr(gossip, "AT_ONCE", at_once)
        found = rule.gossiped(evidence, 4, 5, 1000)
        np.testing.assert_array_equal(found.graph.weights.toarray(), slow.weights.toarray())
        np.testing.assert_array_equal(found.up, up)
        np.testing.assert_array_equal(found.down, down)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 130), st.integers(1, 12), st.integers(0, 10**6))
def test_likeness_does_not_depend_on_what_stands_beside(n: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketches = rng.normal(size=(rows + 1, n))
    evidence = Evidence(sketches, np.ones(rows + 1, bool))
    pairs = np.zeros(rows, np.int64), np.arange(1, rows + 1)
    together = gossip._likeness(evidence, *pairs)
    swapped = gossip._likeness(evidence, *pairs[::-1])
    for i in range(rows):
        known = {i + 1: sketches[i + 1]}
        (alone,) = gossip._looked_at(sketches[0], known, 32)[1]
        assert alone.tobytes() == together[i].tobytes() == swapped[i].tobytes()
    np.testing.assert_allclose(together, evidence.cosines(sketches[:1])[0, 1:], atol=1e-12)


@pytest.mark.parametrize(("n", "count", "phases"), [(40, 4, 8), (600, 6, 8)])
def test_kin_are_found_in_hidden_clusters(n: int, count: int, phases: int) -> None:
    sketches, of = clusters(n, count)
    rule, evidence = kin(gossip=phases), Evidence(sketches, np.ones(n, bool))
    graph, up, down = rule.gossiped(evidence, 0, 5, 10**4)
    one, other = graph.weights.nonzero()
    assert np.mean(of[one] == of[other]) > 0.97
    assert graph.degrees.max() <= rule.most(n) == 9
    assert graph.degrees.mean() > 5
    assert np.mean(graph.degrees == 0) < 0.02
    assert up.sum() == down.sum()
    if n == 600:
        assert up.max() < 0.1 * 256 * (n - 1)  # of what it costs that all know all


def test_with_enough_phases_it_is_as_if_all_knew_all() -> None:
    sketches, _ = clusters(24, 3)
    evidence = Evidence(sketches, np.ones(24, bool))
    everybody = get_rule("kin", {"ties": "both"}).graph(evidence)
    found = kin(gossip=200).gossiped(evidence, 0, 5, 10**4)
    np.testing.assert_array_equal(found.graph.weights.toarray(), everybody.weights.toarray())


def test_the_bill_of_two() -> None:
    """A sketch each in the phase, one to be chosen by, a word that it was sent, and a yes."""
    evidence = Evidence(np.ones((2, 4)), np.ones(2, bool))
    found = kin(gossip=1, sketch=4).gossiped(evidence, 0, 5, 100)
    assert found.graph.edges == 1
    assert found.up.tolist() == found.down.tolist() == [16 + 16 + 1 + 1] * 2


def test_who_has_no_sketch_takes_no_part() -> None:
    sketches, _ = clusters(12, 2)
    known = np.arange(12) != 3
    found = kin().gossiped(Evidence(sketches, known), 0, 5, 100)
    assert found.graph.degrees[3] == found.up[3] == found.down[3] == 0
    assert (found.graph.degrees[known] > 0).all()


@pytest.mark.parametrize("bits", [1, 32])
@pytest.mark.parametrize("numbers", [1, 8, 13])
def test_sketches_arrive_as_they_were_sent(bits: int, numbers: int) -> None:
    rng = np.random.default_rng(0)
    made = rng.normal(size=(3, numbers)).astype(np.float32).astype(np.float64)
    made = np.where(made > 0, 1.0, -1.0) if bits == 1 else made
    known = {5: made[0], 2: made[1], 7: made[2]}
    wire = gossip.passed_on(known, bits)
    assert len(wire) == 3 * (
        4 + get_rule("kin", {"sketch": numbers, "bits": bits}).sketch_bytes(99)
    )
    back = gossip.heard_of(wire, numbers, bits, 8)
    assert back.keys() == known.keys()
    for k, sketch in known.items():
        np.testing.assert_array_equal(back[k], sketch)


def test_nonsense_on_the_wire_is_refused() -> None:
    good = gossip.passed_on({1: np.ones(4)}, 32)
    for wire, sentence in (
        (good[:-1], "multiple"),
        (good + good, "name 1, twice"),
        (gossip.passed_on({9: np.ones(4)}, 32), "name 9, twice or as one of 9"),
        (gossip.passed_on({1: np.array([1, 2, np.nan, 3])}, 32), "NaN"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            gossip.heard_of(wire, 4, 32, 9)
    with pytest.raises(InvalidInput, match="has 3 bytes, but must have 2"):
        gossip.decoded(b"abc", 13, 1)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InvalidInput, match='ties must be "both"'):
        get_rule("kin", {"gossip": 3})
    with pytest.raises(InvalidInput, match="gossip is 0"):
        get_rule("kin", {"tell": 3})
    with pytest.raises(InvalidInput, match="crowd"):
        get_rule("kin", {"ties": "both", "crowd": 2.0})


def test_ten_thousand_peers() -> None:
    """In memory for what each knows, not for all pairs."""
    sketches, of = clusters(10_000, 20)
    graph, up, _ = kin(bits=1).gossiped(
        Evidence(np.where(sketches > 0, 1.0, -1.0), np.ones(len(of), bool), 1), 0, 5, 10**4
    )
    assert graph.degrees.max() <= 9
    assert up.max() < 1000
