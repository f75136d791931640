"""Attacks do what their formulas say, hit the clients that the seed names, and leave honest
clients' own work alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import coterie
from coterie import Federation, InvalidInput, Training
from coterie.adversary import ATTACKS, draw_malicious, get_attack
from coterie.engine.reference import simulate_slowly
from coterie.engine.simulate import Simulator

MALICIOUS = jnp.array([False, True, False, True, False, False])
OPTIONS: dict[str, Any] = {
    "rounds": 3,
    "eval_every": 3,
    "batch_size": 4,
    "precision": "float64",
    "cohort": 4,
}


@pytest.fixture(scope="module")
def messages() -> Any:
    rng = np.random.default_rng(0)
    return {
        "w": jnp.asarray(rng.standard_normal((6, 3, 4)), jnp.float32),
        "b": jnp.asarray(rng.standard_normal((6, 3)), jnp.float32),
    }


def lies(name: str, messages: Any, t: int = 0, **options: Any) -> np.ndarray:
    told = get_attack(name, options).apply(messages, MALICIOUS, 0, t)
    return np.concatenate([np.asarray(told["b"]), np.asarray(told["w"]).reshape(6, -1)], axis=1)


def flat(messages: Any) -> np.ndarray:
    return np.concatenate(
        [np.asarray(messages["b"]), np.asarray(messages["w"]).reshape(6, -1)], axis=1
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_messages_are_left_alone_and_lies_only_told_in_time(
    name: str, messages: Any
) -> None:
    honest, malicious = ~np.asarray(MALICIOUS), np.asarray(MALICIOUS)
    options = {"scale": 3.0} if ATTACKS[name].on_data else {}
    told = lies(name, messages, **options)
    np.testing.assert_array_equal(told[honest], flat(messages)[honest])
    assert not np.isclose(told[malicious], flat(messages)[malicious]).any(1).all()
    np.testing.assert_array_equal(
        lies(name, messages, 1, start=2, stop=4, **options), flat(messages)
    )
    np.testing.assert_array_equal(
        lies(name, messages, 4, start=2, stop=4, **options), flat(messages)
    )
    assert not np.array_equal(lies(name, messages, 3, start=2, stop=4, **options), flat(messages))


def test_same_value_is_one_number_in_every_coordinate(messages: Any) -> None:
    told = lies("same-value", messages, tau=5.0)
    for k in (1, 3):
        assert len(set(told[k].tolist())) == 1
    assert told[1, 0] != told[3, 0]
    many = get_attack("same-value", {"tau": 5.0}).apply(
        jnp.zeros((4000, 1)), jnp.ones(4000, bool), 0, 0
    )
    assert np.std(many) == pytest.approx(5.0, rel=0.05)
    assert abs(np.mean(many)) < 5 * 5.0 / np.sqrt(4000)


def test_sign_flip_is_a_negative_multiple(messages: Any) -> None:
    told, true = lies("sign-flip", messages), flat(messages)
    for k in (1, 3):
        ratio = told[k] / true[k]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
        assert ratio[0] < 0


def test_gaussian_noise_has_its_deviation(messages: Any) -> None:
    noise = np.asarray(
        get_attack("gaussian", {"tau": 2.0}).apply(
            jnp.ones((2, 5000)), jnp.array([True, False]), 0, 0
        )
    )
    assert noise[0].std() == pytest.approx(2.0, rel=0.05)
    assert abs(noise[0].mean()) < 5 * 2.0 / np.sqrt(5000)


def test_alie_stands_z_honest_deviations_aside(messages: Any) -> None:
    true, honest = flat(messages), ~np.asarray(MALICIOUS)
    mean, deviation = true[honest].mean(0), true[honest].std(0)
    np.testing.assert_allclose(
        lies("alie", messages, z=1.5)[1], mean - 1.5 * deviation, rtol=1e-4, atol=1e-5
    )
    z = norm.ppf((6 - 4) / 4)  # n = 6, m = 2, s = ⌊6/2 + 1⌋ − 2 = 2: (n − m − s)/(n − m) = ½
    np.testing.assert_allclose(
        lies("alie", messages)[1], mean - z * deviation, rtol=1e-4, atol=1e-5
    )


def test_inner_product_points_away_from_the_honest_mean(messages: Any) -> None:
    mean = flat(messages)[~np.asarray(MALICIOUS)].mean(0)
    np.testing.assert_allclose(
        lies("inner-product", messages, epsilon=0.7)[3], -0.7 * mean, rtol=1e-4, atol=1e-6
    )


def test_scaled_multiplies(messages: Any) -> None:
    np.testing.assert_allclose(
        lies("scaled", messages, factor=-3.0)[1], -3 * flat(messages)[1], rtol=1e-6
    )


def test_liars_are_fixed_by_the_seed_and_nested() -> None:
    sets = [draw_malicious(3, 50, f) for f in (0.0, 0.1, 0.2, 0.5, 0.8)]
    assert [s.sum() for s in sets] == [0, 5, 10, 25, 40]
    for small, large in zip(sets, sets[1:], strict=False):
        assert (large | ~small).all()
    np.testing.assert_array_equal(sets[2], draw_malicious(3, 50, 0.2))
    assert not np.array_equal(sets[2], draw_malicious(4, 50, 0.2))


def test_labels_are_poisoned_for_liars_only(ragged: Federation) -> None:
    sim = Simulator(
        "fedavg",
        ragged,
        "mlr",
        Training(rounds=1),
        attack=get_attack("label-flip", {"fraction": 0.4}),
    )
    y = np.asarray(sim.setting.data.lying_y)
    for k in range(5):
        rows = slice(ragged.train.offsets[k], ragged.train.offsets[k + 1])
        np.testing.assert_array_equal(
            y[rows], 2 - ragged.train.y[rows] if sim.malicious[k] else ragged.train.y[rows]
        )
    assert sim.malicious.sum() == 2
    drawn = Simulator(
        "fedavg",
        ragged,
        "mlr",
        Training(rounds=1),
        attack=get_attack("random-labels", {"fraction": 0.4}),
    )
    changed = np.asarray(drawn.setting.data.lying_y) != ragged.train.y
    owner = np.repeat(np.arange(5), ragged.train.sizes)
    assert changed.any()
    assert set(owner[changed]) <= set(np.flatnonzero(drawn.malicious))


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("fedavg", "alie"),
        pytest.param("fedu", "gaussian", marks=pytest.mark.slow),
        ("fedu", "random-labels"),
    ],
)
def test_vectorised_equals_one_by_one_under_attack(
    method: str, name: str, ragged: Federation
) -> None:
    chosen = coterie.get_method(
        method, {"local_steps": 2, **({"neighbours": "all"} if method == "fedu" else {})}
    )
    attack = get_attack(name, {"fraction": 0.4, "start": 1})
    fast, slow = (
        run(chosen, ragged, attack=attack, **OPTIONS) for run in (coterie.simulate, simulate_slowly)
    )
    honest = ~fast.simulator.malicious
    for a, b in zip(
        fast.simulator.all_models().leaves, slow.simulator.all_models().leaves, strict=True
    ):
        np.testing.assert_allclose(a[honest], b[honest], rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(fast.ledger.rows(), slow.ledger.rows())


def test_scores_are_over_honest_clients(ragged: Federation) -> None:
    result = coterie.simulate(
        "fedavg", ragged, attack=get_attack("sign-flip", {"fraction": 0.4}), **OPTIONS
    )
    sim = result.simulator
    assert np.isnan(result.client_scores()[sim.malicious]).all()
    has_test = ragged.test.sizes > 0
    assert np.isfinite(result.client_scores()[~sim.malicious & has_test]).all()
    np.testing.assert_array_equal(sim.scored("test"), np.where(sim.malicious, 0, ragged.test.sizes))


def test_a_second_fraction_or_strength_compiles_nothing(ragged: Federation) -> None:
    from coterie.core.compilation import Compilations

    run = lambda **o: coterie.simulate(
        "fedavg", ragged, attack=get_attack("gaussian", o), **OPTIONS
    )
    run(fraction=0.2)
    with Compilations() as compilations:
        run(fraction=0.6, tau=1.0)
    assert compilations.count == 0


@pytest.mark.parametrize(
    "merging",
    ["median", "clipping", *(pytest.param(m, marks=pytest.mark.slow) for m in ("krum", "mean"))],
)
def test_a_message_that_is_not_finite_counts_as_not_sent(merging: str, ragged: Federation) -> None:
    """As a deployed hub does it; and both tellings of a round agree on it."""
    method = coterie.FedAvg(merging=merging, local_steps=2)
    attack = get_attack("scaled", {"fraction": 0.4, "factor": 1e300})  # infinite in float32
    options = {**OPTIONS, "precision": "float32"}
    fast, slow = (
        run(method, ragged, attack=attack, **options) for run in (coterie.simulate, simulate_slowly)
    )
    assert fast.simulator.unsent > 0
    for k in range(5):
        np.testing.assert_allclose(
            fast.personal(k).flat(), slow.personal(k).flat(), rtol=1e-4, atol=1e-6
        )
    np.testing.assert_array_equal(fast.ledger.rows(), slow.ledger.rows())


def test_stores_and_who_is_listened_to_do_not_change_what_liars_say(ragged: Federation) -> None:
    """With `neighbours = "all"` a host store looks at fewer stale neighbours than the device."""
    method = coterie.FedU(local_steps=1, neighbours="all")
    options = {**OPTIONS, "cohort": 2}
    attack = get_attack("gaussian", {"fraction": 0.4, "tau": 1.0})
    ring = coterie.graph.ring(5, 0.5)
    device, host, slow = (
        run(method, ragged, graph=ring, attack=attack, **options, **more)
        for run, more in (
            (coterie.simulate, {}),
            (coterie.simulate, {"store": "host"}),
            (simulate_slowly, {}),
        )
    )
    for k in range(5):
        np.testing.assert_allclose(host.personal(k).flat(), device.personal(k).flat(), rtol=1e-6)
        np.testing.assert_allclose(slow.personal(k).flat(), device.personal(k).flat(), rtol=1e-6)


def test_the_median_withstands_what_breaks_the_mean() -> None:
    """20% of noise on the digits: the mean's model is worthless, the median's hardly harmed."""
    fed = coterie.load("digits", clients=10, fewest_labels=10, most_labels=10)
    attack = get_attack("gaussian", {"fraction": 0.2})
    options = {"rounds": 15, "eval_every": 15}
    mean, median = (
        np.nanmean(
            coterie.simulate(
                coterie.FedAvg(merging=m, local_steps=5), fed, attack=attack, **options
            ).client_scores()
        )
        for m in ("mean", "median")
    )
    assert median > mean + 0.2


def test_nonsense_is_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="must leave at least 1 of 5 clients honest"):
        Simulator(
            "fedavg",
            ragged,
            "mlr",
            Training(rounds=1),
            attack=get_attack("gaussian", {"fraction": 1.0}),
        )
    linear = coterie.load("linear", clients=3)
    with pytest.raises(InvalidInput, match="needs class labels and the task is regression"):
        Simulator("fedavg", linear, "linear", Training(rounds=1), attack=get_attack("label-flip"))
    with pytest.raises(InvalidInput, match=r"fraction is 2.*≥ 0 and ≤ 1"):
        get_attack("gaussian", {"fraction": 2})
    assert jax.tree.leaves(get_attack("alie", {"z": 1.0}))
