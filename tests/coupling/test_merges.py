"""Robust merges: hand-made cases, and that malicious clients cannot drag the result away."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.coupling import merges, penalty
from coterie.coupling.merges import Settings, robust_merge, robust_pull

ONES = jnp.ones


def tree(rows: list[list[float]]) -> dict:
    """Messages of two leaves, so that distances over leaves are tested too."""
    a = jnp.array(rows)
    return {"a": a[:, :1], "b": a[:, 1:]}


def merged(kind: str, rows: list[list[float]], **more: object) -> list[float]:
    messages = tree(rows)
    old = {"a": jnp.zeros(1), "b": jnp.zeros(len(rows[0]) - 1)}
    out = robust_merge(Settings(kind, **more), old, messages, ONES(len(rows)))  # type: ignore[arg-type]
    return np.concatenate([np.asarray(out["a"]), np.asarray(out["b"])]).tolist()


def test_krum_picks_the_honest_vector_by_squared_distances() -> None:
    # n = 5, f = 1: each looks at its n − f − 2 = 2 nearest. Scores by hand: 0.01 + 0.04, 0.01 +
    # 0.01, 0.01 + 0.04, and two far away.
    rows = [[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [5.0, 5.0], [-7.0, 3.0]]
    np.testing.assert_allclose(merges.krum_scores(tree(rows), 1)[:3], [0.05, 0.02, 0.05], atol=1e-6)
    assert merged("krum", rows, byzantine=1) == pytest.approx([0.1, 0.0])


def test_krum_uses_squared_and_not_plain_distances() -> None:
    # Two nearest of 0: 1 and 1 (squares 1 + 1 = 2); of 4: 0 and 1.9 (0 + 3.61). Plain sums would be
    # 2 and 1.9 and pick the other.
    rows = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [4.0, 0.0], [4.0, 0.0], [5.9, 0.0]]
    plain = np.sort(np.abs(np.array(rows)[:, :1] - np.array(rows)[:, 0]), axis=1)[:, 1:3].sum(1)
    assert plain.argmin() in (3, 4)
    assert merged("krum", rows, byzantine=2) == pytest.approx([0.0, 0.0])


def test_multi_krum_averages_the_best() -> None:
    rows = [[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.1, 0.1], [50.0, 50.0]]
    assert merged("multi-krum", rows, byzantine=1) == pytest.approx([0.1, 0.025])


def test_median_and_trimmed_mean_go_coordinate_by_coordinate() -> None:
    rows = [[1.0, 9.0], [2.0, -3.0], [3.0, 4.0], [100.0, 5.0], [-100.0, 6.0]]
    assert merged("median", rows) == [2.0, 5.0]
    assert merged("trimmed", rows, trim=0.2) == pytest.approx([2.0, 5.0])
    assert merged("trimmed", rows, trim=0.0) == pytest.approx(np.mean(rows, 0).tolist(), rel=1e-6)
    assert merged("trimmed", rows, trim=0.5) == [2.0, 5.0], "something must remain"


def test_geometric_median_of_a_triangle_and_with_a_liar() -> None:
    # The Fermat point of an equilateral triangle is its centre.
    corners = [[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]]
    assert merged("geometric-median", corners) == pytest.approx([0.5, 3**0.5 / 6], abs=1e-3)
    assert np.abs(merged("geometric-median", [[0.0, 0.0]] * 4 + [[1e6, 0.0]])).max() < 1e-2


def test_clipping_bounds_what_one_can_do() -> None:
    assert merged("clipping", [[3.0, 4.0], [0.0, 0.5]], clip=1.0) == pytest.approx(
        [0.3, 0.65]
    )  # (0.6, 0.8) and (0, 0.5), halved


def test_the_mean_follows_its_weights() -> None:
    out = robust_merge(
        Settings("mean"), None, tree([[1.0, 0.0], [4.0, 3.0]]), jnp.array([2.0, 1.0])
    )
    assert np.concatenate([np.asarray(out["a"]), np.asarray(out["b"])]).tolist() == [2.0, 1.0]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["median", "trimmed", "krum", "multi-krum", "geometric-median"]),
)
def test_a_minority_of_liars_cannot_leave_the_honest_range(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    honest, byzantine = rng.normal(0, 1, (7, 3)), rng.normal(0, 1e4, (2, 3))
    out = np.array(
        merged(
            kind,
            rng.permutation(np.concatenate([honest, byzantine])).tolist(),
            byzantine=2,
            trim=0.25,
        )
    )
    assert np.abs(out).max() < 2 * np.abs(honest).max() + 1


def test_robust_pulls_by_hand() -> None:
    own = jnp.array([10.0])
    messages, weights = (
        jnp.array([[1.0], [2.0], [3.0], [1000.0], [7.0]]),
        jnp.array([1.0, 1.0, 1.0, 1.0, 0.0]),
    )
    assert float(robust_pull("median", own, messages, weights, 2)[0]) == pytest.approx(
        4 * (10 - 2.5)
    )
    assert float(robust_pull("trimmed", own, messages, weights, 2, trim=0.25)[0]) == pytest.approx(
        4 * (10 - 2.5)
    )
    assert float(robust_pull("clipping", own, messages, weights, 2, clip=5.0)[0]) == pytest.approx(
        5 + 5 + 5 - 5
    )
    assert float(robust_pull("median", own, messages, weights, 1)[0]) == 4.0
    for kind in ("median", "trimmed", "clipping"):
        assert float(robust_pull(kind, own, messages, jnp.zeros(5), 2)[0]) == 0.0, (
            "no neighbours, no pull"
        )
    plain = penalty.pull(own, messages, weights, 2)
    np.testing.assert_allclose(robust_pull("clipping", own, messages, weights, 2, clip=1e9), plain)


def test_any_star_or_graph_method_takes_them_in_a_run() -> None:
    fed = coterie.load("digits", clients=5)
    run = {"rounds": 2, "eval_every": 2, "batch_size": 8}
    plain = (
        coterie.simulate(coterie.FedAvg(local_steps=2), fed, **run).simulator.all_models().flat()
    )
    wide = coterie.simulate(
        coterie.FedAvg(local_steps=2, merging="clipping", clip=1e9, weighting="samples"), fed, **run
    )
    np.testing.assert_allclose(wide.simulator.all_models().flat(), plain, atol=1e-6)
    other = (
        coterie.simulate(coterie.FedAvg(local_steps=2, merging="median"), fed, **run)
        .simulator.all_models()
        .flat()
    )
    assert np.abs(other - plain).max() > 1e-4
    sums = coterie.simulate(coterie.DFedU(local_steps=2), fed, **run).simulator.all_models().flat()
    clipped = (
        coterie.simulate(coterie.DFedU(local_steps=2, mixing="clipping", clip=1e9), fed, **run)
        .simulator.all_models()
        .flat()
    )
    np.testing.assert_allclose(clipped, sums, atol=1e-6)
