"""A graph that is learnt while training: what it finds, what it costs, and that it does not matter
how it is computed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel import get_channel
from coterie.core.errors import InvalidInput
from coterie.coupling.learnt import GraphRule, get_rule
from coterie.engine.reference import simulate_slowly
from coterie.methods.base import get_method

SITES, CLUSTERS = 12, np.arange(12) % 2
SAME = CLUSTERS[:, None] == CLUSTERS[None]


@pytest.fixture(scope="module")
def two() -> Federation:
    """Two hidden clusters with rules that have nothing in common."""
    rng = np.random.default_rng(0)
    rules, owner = rng.normal(size=(2, 8)), np.repeat(np.arange(SITES), 40)
    x = rng.normal(size=(len(owner), 8)).astype(np.float32)
    value = (x * rules[CLUSTERS[owner]]).sum(1) + 0.3 * rng.normal(size=len(owner))
    return coterie.from_arrays("two", x, (value > 0).astype(np.int32), owner, classes=2, test=0.4)


def kin(**options: Any) -> GraphRule:
    return get_rule("kin", {"neighbours": 3, "sketch": 16, "after": 3, **options})


TRAINING: dict[str, Any] = {"rounds": 6, "eval_every": 3, "batch_size": 10}


def flat(result: Any) -> np.ndarray:
    sim = result.simulator
    return np.stack([np.asarray(sim.models(k)["personal"].flat()) for k in range(SITES)])


@pytest.mark.parametrize("rule", [kin(), kin(sketch=512, bits=1), kin(sketch=0)])
def test_hidden_clusters_are_found(two: Federation, rule: GraphRule) -> None:
    found = coterie.simulate("fedu", two, graph=rule, **TRAINING)
    weights = found.simulator.graph.weights.toarray()
    assert weights[~SAME].sum() == 0
    assert (weights.sum(1) >= 3).all()


def test_nothing_is_sent_before_and_sketches_are_billed(two: Federation) -> None:
    for name, sketches in (("fedu", 4 * 16), ("dfedu", 4 * 16 * (SITES - 1))):
        found = coterie.simulate(name, two, graph=kin(), **TRAINING)
        rows = found.ledger.rows()
        assert rows[rows[:, 0] < 3][:, 2:4].sum() == 0
        assert rows[rows[:, 0] < 3][:, 4].sum() == 3 * 20 * SITES
        once = rows[(rows[:, 0] == 3) & (rows[:, 4] == 0)]
        assert (once[:, 2] == sketches).all()
        assert len(once) == SITES
        if name == "dfedu":
            assert (once[:, 3] == sketches).all()
        later = rows[(rows[:, 0] >= 3) & (rows[:, 4] > 0)]
        assert (later[:, 2] > 0).all()
    bits = coterie.simulate("fedu", two, graph=kin(bits=1), **TRAINING).ledger.rows()
    assert (bits[(bits[:, 0] == 3) & (bits[:, 4] == 0)][:, 2] == 2).all()


INT8 = get_channel("plain", {"values": "int8"})
"""Messages of one size, over public copies."""
CASES: list[tuple[str, dict[str, Any], GraphRule, dict[str, Any], Any]] = [
    ("fedu", {}, kin(), {}, "plain"),
    ("dfedu", {}, kin(bits=1, every=2), {}, "plain"),
    ("dfedu", {}, kin(ties="both", gossip=4, tell=2, every=2), {}, "plain"),
    ("dfedu", {}, kin(ties="both", gossip=2, tell=1, every=1), {}, INT8),
    ("fedu", {"neighbours": "all"}, kin(every=1), {"cohort": 5}, "delta"),
]
RARELY = {"exchange_every": 2, "implicit": True, "eta": 0.1}
LONG: list[tuple[str, dict[str, Any], GraphRule, dict[str, Any], Any]] = [
    ("graph-proj", {"dsub": 6}, kin(), {}, "plain"),
    ("graph-proj", {"dsub": 6, "hub": False}, kin(ties="both", gossip=4, bits=1), {}, "delta"),
    ("dfedu", RARELY, kin(ties="both", gossip=2, tell=1, every=1), {"rounds": 9}, INT8),
    ("fedu", {}, get_rule("dada", {"after": 2}), {"cohort": 7}, "plain"),
]


@pytest.mark.parametrize(
    ("name", "options", "rule", "more", "channel"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)],
)
def test_one_client_at_a_time_gives_the_same(
    two: Federation,
    name: str,
    options: dict[str, Any],
    rule: GraphRule,
    more: dict[str, Any],
    channel: Any,
) -> None:
    given = {**TRAINING, **more, "precision": "float64"}
    method = get_method(name, options)
    fast = coterie.simulate(method, two, graph=rule, channel=channel, **given)
    slow = simulate_slowly(method, two, graph=rule, channel=channel, **given)
    np.testing.assert_array_equal(
        fast.simulator.graph.weights.toarray(), slow.simulator.graph.weights.toarray()
    )
    np.testing.assert_allclose(flat(fast), flat(slow), rtol=1e-10, atol=1e-12)
    order = lambda r: r[np.lexsort(r.T[::-1])]
    np.testing.assert_array_equal(order(fast.ledger.rows()), order(slow.ledger.rows()))


def test_who_was_never_sampled_is_tied_to_nobody(two: Federation) -> None:
    found = coterie.simulate("fedu", two, graph=kin(after=1), **{**TRAINING, "cohort": 4})
    sim = found.simulator
    trained = set(np.unique(found.ledger.rows()[:, 1][found.ledger.rows()[:, 0] == 0]))
    assert set(np.flatnonzero(sim.graph.degrees)) <= trained
    assert sim.kinship is not None
    assert set(np.flatnonzero(sim.kinship.known)) == trained


@pytest.mark.parametrize(
    ("stop", "name", "cohort", "rule"),
    [
        *((stop, "fedu", 8, kin(every=2)) for stop in (2, 3, 5)),
        (4, "dfedu", SITES, kin(every=2, ties="both", gossip=4)),
    ],
)
def test_resumed_equals_undisturbed(
    two: Federation, stop: int, name: str, cohort: int, rule: GraphRule
) -> None:
    options = coterie.Training(**TRAINING, cohort=cohort)

    def made() -> coterie.Simulator:
        return coterie.Simulator(name, two, "mlr", options, rule)

    def run_to(sim: coterie.Simulator, t: int) -> coterie.Simulator:
        while sim.t < t:
            sim.advance(t - sim.t)
        return sim

    whole, first, second = run_to(made(), 6), run_to(made(), stop), made()
    second.restore(first.state(np.arange(SITES)))
    run_to(second, 6)
    assert second.ledger.totals() == whole.ledger.totals()
    for a, b in zip(
        jax.tree.leaves(whole.all_models()), jax.tree.leaves(second.all_models()), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_resumed_between_a_search_and_its_round(two: Federation) -> None:
    """Peers that talk rarely: whole copies for new neighbours are still to be paid."""
    method = get_method("dfedu", {"exchange_every": 3, "implicit": True, "eta": 0.1})
    rule, options = kin(ties="both", gossip=2, tell=1, every=4), coterie.Training(rounds=9)
    made = lambda: coterie.Simulator(method, two, "mlr", options, rule, channel=INT8)
    whole, first, second = made(), made(), made()
    for sim, end in ((whole, 9), (first, 8)):
        while sim.t < end:
            sim.advance(end - sim.t)
    assert first.kinship is not None
    assert first.kinship.joined.sum() > 0
    second.restore(first.state(np.arange(SITES)))
    second.advance(1)
    assert second.ledger.totals() == whole.ledger.totals()


def test_side_by_side_each_learns_its_own(two: Federation) -> None:
    methods = [coterie.FedU(eta=0.01, lr=0.01), coterie.FedU(eta=0.05, lr=0.2)]
    many = coterie.simulate_many(methods, two, graph=kin(every=2), **TRAINING)
    for method, together in zip(methods, many, strict=True):
        alone = coterie.simulate(method, two, graph=kin(every=2), **TRAINING)
        np.testing.assert_array_equal(
            alone.simulator.graph.weights.toarray(), together.simulator.graph.weights.toarray()
        )
        np.testing.assert_allclose(flat(alone), flat(together), rtol=1e-5, atol=1e-6)
        assert alone.ledger.totals() == together.ledger.totals()


def test_stores_agree(two: Federation) -> None:
    given = {**TRAINING, "cohort": 8}
    found = [
        coterie.simulate("fedu", two, graph=kin(every=2), store=store, **given)
        for store in ("device", "host")
    ]
    np.testing.assert_array_equal(flat(found[0]), flat(found[1]))


@pytest.mark.parametrize(("name", "rule"), [("fedu", kin()), ("dfedu", kin(ties="both", gossip=5))])
def test_newcomers_find_their_cluster(two: Federation, name: str, rule: GraphRule) -> None:
    members, out = np.arange(2, SITES), np.arange(2)
    found = coterie.simulate(name, two.subset(members), graph=rule, **TRAINING)
    from coterie.engine import adapt

    seen = []
    kept = adapt.compiled_join

    def join(*given: Any) -> Any:
        seen.append(np.asarray(given[3][1]))
        return kept(*given)

    adapt.compiled_join = join
    try:
        adapt.adapt(found.simulator, two.subset(out), rounds=3)
    finally:
        adapt.compiled_join = kept
    (weights,) = seen
    assert (weights.sum(1) == 3).all()
    for newcomer, row in enumerate(weights):
        assert set(CLUSTERS[members[row > 0]]) == {CLUSTERS[newcomer]}


def test_peers_that_gossip_find_their_cluster_and_pay_for_it(two: Federation) -> None:
    rule = kin(ties="both", gossip=5, tell=2, every=2)
    found = coterie.simulate("dfedu", two, graph=rule, **TRAINING)
    weights = found.simulator.graph.weights.toarray()
    assert weights[~SAME].sum() == 0
    assert weights.sum(1).mean() >= 2
    assert weights.sum(1).max() <= 3
    rows = found.ledger.rows()
    for t in (3, 5):
        once = rows[(rows[:, 0] == t) & (rows[:, 4] == 0)]
        assert len(once) == SITES
        assert once[:, 2].sum() == once[:, 3].sum()
        assert (once[:, 2] >= 5 * 64).all()  # a sketch in each phase, at least
        assert once[:, 2].max() <= 5 * 64 + 4 * 2 * 68 + 3 * 64 + 4 + SITES
    again = coterie.simulate("dfedu", two, graph=rule, **TRAINING)
    np.testing.assert_array_equal(flat(found), flat(again))


def test_new_neighbours_pay_for_a_whole_copy(two: Federation) -> None:
    """Over public copies, who was no neighbour before has nothing that a difference could be added
    to. Before the first graph nobody has sent anything, and all copies are alike.
    """
    rule = kin(ties="both", gossip=2, tell=1, every=2)
    sim = coterie.Simulator("dfedu", two, "mlr", coterie.Training(**TRAINING), rule, channel=INT8)
    near, numbers = {}, sum(leaf.size for leaf in jax.tree.leaves(sim.template))
    for t in range(6):
        sim.advance(1)
        near[t] = sim.graph.weights.toarray() > 0  # type: ignore[union-attr]
    rows = sim.ledger.rows()
    talked = rows[(rows[:, 4] > 0) & (rows[:, 0] >= 3)]
    up, down = (talked[np.lexsort(talked[:, 1::-1].T)][:, i].reshape(3, SITES) for i in (2, 3))
    size, whole = up.sum(1)[0] // near[3].sum(), 2 + 4 * numbers
    new = near[5] & ~near[4]
    assert 0 < new.sum() < near[5].sum()
    for t, fresh in ((3, 0), (4, 0), (5, new.sum(1))):
        expected = size * near[t].sum(1) + (whole - size) * fresh
        np.testing.assert_array_equal(up[t - 3], expected)
        np.testing.assert_array_equal(down[t - 3], expected)


def test_nobody_gossips_who_has_nothing_new_to_tell(two: Federation) -> None:
    """Where clients talk rarely, the graph may be due several times between two rounds of work."""
    method = get_method("dfedu", {"exchange_every": 3, "implicit": True, "eta": 0.1})
    rule = kin(ties="both", gossip=2, every=1)
    rows = coterie.simulate(method, two, graph=rule, **{**TRAINING, "rounds": 9}).ledger.rows()
    assert set(rows[(rows[:, 4] == 0) & (rows[:, 2] > 0)][:, 0]) == {3, 6}


def test_gossip_with_a_hub_is_refused(two: Federation) -> None:
    with pytest.raises(InvalidInput, match="fedu has a hub"):
        coterie.simulate("fedu", two, graph=kin(ties="both", gossip=3), **TRAINING)


def test_an_attack_is_refused(two: Federation) -> None:
    with pytest.raises(InvalidInput, match="the graph is learnt"):
        coterie.simulate("fedu", two, graph=kin(), attack="sign-flip", **TRAINING)


def test_a_graph_that_makes_mixing_unstable_is_said(two: Federation) -> None:
    with pytest.warns(Warning, match="breaks a step-size condition"):
        coterie.simulate(coterie.FedU(eta=0.5), two, graph=kin(), **{**TRAINING, "rounds": 4})


def test_the_report_says_what_was_learnt(two: Federation) -> None:
    told = coterie.compare(["fedu"], two, graph=kin(every=2), **TRAINING)
    (sentence,) = [s for s in told.notes() if "learnt a graph" in s]
    assert "2 components" in sentence
    assert "learnt 2 times" in sentence
    assert "a client sent 128 B for it" in sentence
    two.facts["cluster"] = CLUSTERS.tolist()
    try:
        (sentence,) = [s for s in told.notes() if "learnt a graph" in s]
    finally:
        del two.facts["cluster"]
    assert "the hidden clusters" in sentence
    assert "AUC of 1.000" in sentence


def test_agreement_is_the_share_of_pairs_in_the_right_order() -> None:
    from coterie.coupling.learnt import Evidence
    from coterie.coupling.learnt.base import empty
    from coterie.report.learnt import LearntGraph, arranged

    rng = np.random.default_rng(0)
    vectors, of = rng.normal(size=(9, 4)) + 1, rng.integers(0, 2, 9)
    evidence = Evidence(vectors, np.arange(9) != 3)
    found = LearntGraph(empty(9), evidence, np.zeros((1, 3)))
    cosines = evidence.cosines(vectors)
    pairs = [(k, l) for k in range(9) for l in range(k) if 3 not in (k, l)]
    together = [cosines[p] for p in pairs if of[p[0]] == of[p[1]]]
    apart = [cosines[p] for p in pairs if of[p[0]] != of[p[1]]]
    share = np.mean([a > b for a in together for b in apart])
    assert found.agreement(of[:, None] == of[None]) == pytest.approx(share)
    assert found.agreement(np.ones((9, 9))) is None
    assert sorted(arranged(coterie.graph.ring(7))) == list(range(7))
