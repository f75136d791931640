"""The tests of paired differences against other people's code and against counting by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from coterie.report import significance as sig
from coterie.report.significance import Rows, of_each_client, of_other_sites, of_these_sites


def one_client(d: Any) -> Rows:
    return Rows(np.zeros(len(d), int), np.asarray(d, float))


@pytest.mark.parametrize(("won", "lost", "tied"), [(9, 1, 20), (5, 5, 3), (0, 7, 0), (0, 0, 4)])
def test_one_client_and_one_seed_is_the_exact_mcnemar_test(won: int, lost: int, tied: int) -> None:
    _, (p,) = of_each_client([one_client([1] * won + [-1] * lost + [0] * tied)], [0])
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert p == pytest.approx(expected)


def test_over_seeds_rows_are_flipped_as_a_whole() -> None:
    """Three seeds, five rows: all 2⁵ patterns of signs of the rows' sums, by hand."""
    d = np.array([[1, 1, 0, 1, -1], [1, 1, 0, 0, -1], [1, 0, 1, 0, 0]], float)
    sums = d.sum(0)
    flipped = [abs(np.dot(s, sums)) for s in itertools.product([1, -1], repeat=5)]
    expected = np.mean(np.array(flipped) >= abs(sums.sum()) - 1e-9)
    _, (p,) = of_each_client([one_client(row) for row in d], [0])
    assert p == pytest.approx(expected)


@pytest.mark.parametrize("n", [7, 12])
def test_few_differences_are_enumerated(n: int) -> None:
    d = np.random.default_rng(n).normal(0.6, 1, n)
    expected = stats.permutation_test(
        (d, np.zeros(n)), lambda a, b: np.mean(a - b), permutation_type="samples"
    ).pvalue
    assert of_other_sites(d[None]).p == pytest.approx(expected)
    _, (p,) = of_each_client([one_client(d)], [0])
    assert p == pytest.approx(expected)


def test_the_fewest_clients_give_the_smallest_p() -> None:
    assert of_other_sites(np.ones((1, 5))).p == 2 / 2**5
    assert of_other_sites(np.ones((1, 6))).p == 2 / 2**6


def test_many_rows_are_normal_and_agree_with_random_signs() -> None:
    d = np.random.default_rng(0).choice([-1.0, 0, 1.0], 1000, p=[0.23, 0.5, 0.27])
    normal = sig.flips(d)
    assert normal.step == 1.0, "the normal approximation with its correction for a lattice"
    exact = sig._lattice(d.astype(int))
    assert sig.p_value(float(d.sum()), normal) == pytest.approx(exact, abs=0.0001)
    few = d[:150]
    drawn = sig.p_value(float(few.sum()), sig.flips(few))
    assert drawn == pytest.approx(sig._lattice(few.astype(int)), abs=0.015)


def test_every_site_counts_the_same() -> None:
    """A site with 90 rows and one with 10: the mean over sites of their means."""
    rows = Rows(np.repeat([0, 1], [90, 10]), np.repeat([1.0, 0.0], [90, 10]))
    assert of_these_sites([rows]).mean == pytest.approx(0.5)


@pytest.mark.parametrize("seeds", [1, 2, 4])
@pytest.mark.parametrize("shared", [True, False])
def test_the_interval_excludes_zero_when_the_test_rejects(seeds: int, shared: bool) -> None:
    rng = np.random.default_rng(seeds)
    seen = set()
    for shift in np.linspace(0, 1.5, 40):
        base = rng.normal(shift, 1, 30)
        rows = [Rows(np.arange(30) % 3, base + rng.normal(0, 0.1, 30)) for _ in range(seeds)]
        found = of_these_sites(rows, shared=shared)
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.mean < found.high
        assert (found.low > 0 or found.high < 0) == (found.p <= sig.LEVEL)
        seen.add(found.p <= sig.LEVEL)
    assert seen == {True, False}, "else the check above is empty"


def test_the_interval_is_about_the_classical_one() -> None:
    d = np.random.default_rng(0).normal(0.3, 1.0, 400)
    found = of_these_sites([one_client(d)])
    low, high = stats.t.interval(0.95, 399, d.mean(), stats.sem(d))
    assert (found.low, found.high) == (
        pytest.approx(low, abs=0.005),
        pytest.approx(high, abs=0.005),
    )


def test_seeds_that_disagree_take_certainty_away() -> None:
    base = np.full(40, 0.3) + np.random.default_rng(0).normal(0, 0.3, 40)
    alike = [Rows(np.arange(40) % 4, base + e) for e in (0.0, 0.0, 0.0)]
    unlike = [Rows(np.arange(40) % 4, base + e) for e in (-0.6, 0.0, 0.6)]
    assert of_these_sites(alike).p < 0.001
    assert of_these_sites(unlike).p > 0.05
    assert of_these_sites(unlike).p_here < 0.001


def test_corrections_agree_with_scipy() -> None:
    p = np.random.default_rng(0).random(20) ** 3
    assert sig.benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))
    order = np.argsort(p)
    by_hand = [max(p[order[j]] * (20 - j) for j in range(i + 1)) for i in range(20)]
    assert sig.holm(p)[order] == pytest.approx(np.minimum(1, by_hand))
