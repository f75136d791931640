"""Tests of paired differences that hold their level for few sites and few seeds.

All functions take differences (a method's score minus that of Local) and know nothing of methods or
files. Differences of metrics that are not means over rows are made rowwise before
(`core.metric_effects` says how, and why tests of them are exact). Two questions are asked of them:

*Do these very sites gain?* (`of_these_sites`) The sites are fixed, their test rows are a sample.
*Would another site like these gain?* (`of_other_sites`) The sites are a sample.

Both are paired sign-flip tests (Fisher 1935; Pitman 1937): if a method changes nothing, a
difference is as likely to be d as −d, so the observed mean is one of many means with random signs.
The test is exact for symmetric differences. Where differences are not symmetric but have mean 0
it holds its level for large samples, and errs on the safe side where sites gain and lose by turns.

Training runs (seeds) are a further, crossed random effect. With S ≥ 2 of them, a gain m is
significant at level α when

    m² > c(α)² + t(α)² v,

where c(α) is the critical value of the sign-flip test of the means over seeds, v the variance of
the mean over seeds (from the S means) and t(α) Student's critical value with S − 1 degrees of
freedom. Adding the squared critical values of two independent sources of error keeps the level
whatever the two variances are (Banerjee, Sankhyā 22, 1960). With one run, nothing can be said about
others: the answer is then about this run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[Any]

LEVEL = 0.05
FEWEST = 6
"""Clients below which a sign-flip test over clients cannot give p ≤ 0.05: 2/2⁵ is 0.0625."""
FEWEST_ROWS = 10
"""Test rows that must differ for an interval to be given: with fewer its coverage is not known."""
ENUMERATED = 13
"""Up to so many differences all sign patterns are looked at; beyond, a random sample of them."""
DRAWS = 9999
MANY = 100
"""With so many differences (counted as (Σa²)²/Σa⁴) the sum of random signs is normal: a p-value of
0.05 is then off by less than 0.001.
"""
CLOSE = 1 - 1e-5
"""Ties are ties in spite of rounding."""


@dataclasses.dataclass(frozen=True)
class Tested:
    """What a test found: the mean, its p-value (two-sided) and the values that it does not reject
    at 5%, which exclude 0 exactly when p ≤ 0.05. There is no interval when none is finite or too
    few rows differ. `p_here` is of the mean of these very training runs, as if seeds were fixed.
    """

    mean: float
    p: float
    p_here: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Flips:
    """The distribution of |Σ ±aᵢ| over random signs.

    `values` falls; the chance of reaching more than `values[j]` is at most `chances[j]`. `step` is
    half the distance of two sums on a lattice, for the normal approximation.
    """

    values: Array
    chances: Array
    step: float = 0.0

    def critical(self, level: float) -> float:
        """The smallest value that is significant at the level; infinite when there is none."""
        there = np.flatnonzero(self.chances <= level * (1 + 1e-12))
        return float(self.values[there[-1]]) + self.step if len(there) else float("inf")


@lru_cache(maxsize=32)
def _signs(n: int) -> Array:
    """All patterns of n signs, but for the overall sign, which |Σ| does not see."""
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1
    return np.asarray(1 - 2 * bits, np.float64)


@lru_cache(maxsize=4)
def _random_signs(width: int) -> Array:
    """A random sample of patterns of signs."""
    rng = np.random.default_rng([width, 0xF11])
    return np.asarray(1 - 2 * rng.integers(0, 2, (DRAWS, width), np.int8), np.float32)


@lru_cache(maxsize=2)
def _chances() -> Array:
    return (np.arange(DRAWS) + 1) / (DRAWS + 1)


@lru_cache(maxsize=2)
def _normal() -> Array:
    return np.asarray(stats.norm.isf(_chances() / 2))


@lru_cache(maxsize=64)
def _student(freedom: int, size: int) -> Array:
    """Student's critical values at the chances of `Flips`."""
    chances = _chances() if size == DRAWS else np.arange(size) / size
    return np.asarray(stats.t.isf(chances / 2, freedom))


def flips(terms: Array) -> Flips:
    """The sign-flip distribution of a sum of terms: exact for up to 13 terms that are not 0, a
    random sample of patterns for more, and normal for many.
    """
    a = np.abs(terms[terms != 0])
    if len(a) <= ENUMERATED:
        sums = np.abs(_signs(max(1, len(a))) @ a) if len(a) else np.zeros(1)
        return Flips(-np.sort(-sums), np.arange(len(sums)) / len(sums))
    square = float((a**2).sum())
    if square**2 > MANY * float((a**4).sum()):
        return Flips(_normal() * np.sqrt(square), _chances(), float(a.min()))
    scale = np.sqrt(square)
    signs = _random_signs(1 << (len(a) - 1).bit_length())[:, : len(a)]
    sums = np.abs(signs @ (a / scale).astype(np.float32)) * scale
    return Flips(-np.sort(-sums.astype(np.float64)), _chances())


def together(each: Sequence[Flips]) -> Flips:
    """The sign-flip distribution of a mean over seeds whose rows overlap in an unknown way: as if
    all seeds had the same rows, which is on the safe side.
    """
    if len(each) == 1:
        return each[0]
    at = np.stack(
        [f.values[np.searchsorted(f.chances, _chances() * (1 + 1e-12), "right") - 1] for f in each]
    )
    return Flips(
        np.sqrt((at**2).mean(0)), _chances(), float(np.sqrt(np.mean([f.step**2 for f in each])))
    )


def p_value(mean: float, null: Flips, variance: float = 0.0, freedom: int = 0) -> float:
    """The smallest level at which the mean is significant: m² > c(α)² + t(α)² v."""
    size = max(0.0, abs(mean) - null.step) * CLOSE
    bound = null.values**2
    if variance > 0:
        bound = bound + _student(freedom, len(null.values)) ** 2 * variance
    beaten = np.flatnonzero(size**2 > bound)
    return float(null.chances[beaten[0]]) if len(beaten) else 1.0


def _interval(
    mean: float, null: Flips, moments: tuple[float, float, float], seeds: tuple[float, int]
) -> tuple[float | None, float | None]:
    """The values x that the test of (differences − x) does not reject at 5%.

    The sign-flip distribution keeps its shape and takes the standard deviation that it has at x:
    √(A − 2Bx + Cx²), where A, B, C are the sums of w²d², w²d, w² (w²d², w²sd, w²s² where rows have
    shares s of a gain). That leaves a quadratic equation.
    """
    a, b, c = moments
    critical = null.critical(LEVEL)
    if a <= 0 or not np.isfinite(critical):
        return None, None
    q = critical**2 / a
    variance, freedom = seeds
    t = float(stats.t.isf(LEVEL / 2, freedom)) if variance > 0 else 0.0
    square, linear, constant = 1 - q * c, mean - q * b, mean**2 - q * a - t**2 * variance
    if square <= 0:
        return None, None
    root = np.sqrt(max(0.0, linear**2 - square * constant))
    return float((linear - root) / square), float((linear + root) / square)


def _over_seeds(means: Array) -> tuple[float, int]:
    """The variance of the mean over seeds, and its degrees of freedom; nothing with one seed."""
    s = len(means)
    return (float(means.var(ddof=1)) / s, s - 1) if s > 1 else (0.0, 0)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Paired differences of test rows at one seed, and the client that each belongs to.

    Of a metric that is not a mean over rows they are the effects of exchanging the two predictions
    of a row (`core.metric_effects`); `share` is then the part of a common gain that a row has, 1 on
    average over a client's rows.
    """

    client: Array
    difference: Array
    share: Array | None = None

    def weights(self) -> Array:
        """One part for every client, shared out among its rows."""
        _, index, count = np.unique(self.client, return_inverse=True, return_counts=True)
        return 1.0 / (len(count) * count[index])

    def of_clients(self, clients: Sequence[int]) -> list[Array]:
        """Each client's differences."""
        order = np.argsort(self.client, kind="stable")
        owner, sorted_ = self.client[order], self.difference[order]
        begin, end = (np.searchsorted(owner, clients, side) for side in ("left", "right"))
        return [sorted_[b:e] for b, e in zip(begin, end, strict=True)]


def _by_run(rows: Sequence[Rows], shared: bool) -> list[Rows]:
    """One set of rows if all seeds have the same ones: the mean over seeds, row by row."""
    if not shared:
        return list(rows)
    return [Rows(rows[0].client, np.mean([r.difference for r in rows], axis=0), rows[0].share)]


def of_these_sites(rows: Sequence[Rows], *, shared: bool = True) -> Tested:
    """Do these very sites gain? Hypothesis: the mean over these sites of their mean difference,
    over all rows that they might have been tested on (and all seeds), is 0.

    Paired sign-flips of test rows within sites; the statistic is the mean over sites of each site's
    mean. `rows` has one item per seed; `shared` says that all have the same rows. With several
    seeds the variance over seeds is added as described above.
    """
    weights = [r.weights() for r in rows]
    means = np.array([float(w @ r.difference) for w, r in zip(weights, rows, strict=True)])
    mean = float(means.mean())
    runs = _by_run(rows, shared)
    pairs = list(zip(weights, runs, strict=False))
    null = together([flips(w * r.difference) for w, r in pairs])
    seeds = _over_seeds(means)
    share = [1.0 if r.share is None else r.share for r in runs]

    def power(k: int) -> float:
        """The mean over seeds of Σ w² dᵏ, times s^(2 − k) where rows have shares of a gain."""
        three = [(w, r.difference, s) for (w, r), s in zip(pairs, share, strict=True)]
        return float(np.mean([np.sum(w**2 * d**k * s ** (2 - k)) for w, d, s in three]))

    p = p_value(mean, null, *seeds), p_value(mean, null)
    if min(np.count_nonzero(r.difference) for r in runs) < FEWEST_ROWS:
        return Tested(mean, *p)
    return Tested(mean, *p, *_interval(mean, null, (power(2), power(1), power(0)), seeds))


def of_other_sites(differences: Array) -> Tested:
    """Would another site like these gain? Hypothesis: the mean difference of the sites that these
    were drawn from is 0.

    From an array (seeds, clients). Paired sign-flips of the clients' means over seeds, all 2ᴷ of
    them for up to 13 clients. With several seeds the p-value is the larger of that and of the test
    above with Student's critical value for the clients' variance, too: the few sums that few
    clients have leave no room to add anything to.
    """
    each = differences.mean(0)
    k, mean = len(each), float(each.mean())
    p = p_value(mean, flips(each / k))
    variance, freedom = _over_seeds(differences.mean(1))
    if not variance:
        return Tested(mean, p, p)
    clients = Flips(_student(k - 1, DRAWS) * each.std(ddof=1) / np.sqrt(k), _chances())
    return Tested(mean, max(p, p_value(mean, clients, variance, freedom)), p)


@lru_cache(maxsize=1024)
def _coins(count: int) -> Array:
    """The chances of 0, 1, …, `count` heads."""
    return np.asarray(stats.binom.pmf(np.arange(count + 1), count, 0.5))


def _lattice(whole: Array) -> float:
    """Exact sign-flip p-value of the sum of whole numbers: the distribution is a convolution of
    binomial ones. For −1, 0 and 1 this is the exact McNemar test.
    """
    sizes = np.abs(whole[whole != 0])
    chances = np.ones(1)
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        spaced = np.zeros(int(size) * int(count) + 1)
        spaced[:: int(size)] = _coins(int(count))
        chances = np.convolve(chances, spaced)
    # Entry j is the sum 2j − Σ sizes.
    sums = 2 * np.arange(len(chances)) - int(sizes.sum())
    return float(min(1.0, chances[np.abs(sums) >= abs(int(whole.sum()))].sum()))


def of_each_client(
    rows: Sequence[Rows], clients: Sequence[int], *, shared: bool = True
) -> tuple[Array, Array]:
    """Per client, the mean difference on its own test rows and the p-value of the hypothesis that
    it is 0 in these training runs.

    Accuracy: the exact McNemar test (McNemar 1947), and over several seeds its generalisation, the
    exact sign-flip test of each row's number of seeds won minus lost. Regression: the sign-flip
    test.
    """
    means, ps = [], []
    whole = all(np.isin(r.difference, (-1.0, 0.0, 1.0)).all() for r in rows)
    runs = _by_run(rows, shared)
    for mine in zip(*(r.of_clients(clients) for r in runs), strict=True):
        mean = float(np.mean([d.mean() for d in mine]))
        if whole and len(mine) == 1:
            p = _lattice(np.rint(mine[0] * len(rows)).astype(np.int64))
        else:
            p = p_value(mean, together([flips(d / len(d)) for d in mine]))
        means.append(mean)
        ps.append(p)
    return np.array(means), np.array(ps)


def holm(p: Sequence[float] | Array) -> Array:
    """Adjusted p-values that bound the chance of any false discovery (Holm, Scand. J. Statist. 6,
    1979).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, float)
    order = np.argsort(values, kind="stable")
    worse = values[order] * (len(values) - np.arange(len(values)))
    out = np.empty(len(values))
    out[order] = np.minimum(1.0, np.maximum.accumulate(worse))
    return out


def benjamini_hochberg(p: Sequence[float] | Array) -> Array:
    """Adjusted p-values that bound the share of false discoveries (Benjamini and Hochberg, J. R.
    Statist. Soc. B 57, 1995).

    >>> benjamini_hochberg([0.01, 0.04, 0.03, 0.5]).round(4).tolist()
    [0.04, 0.0533, 0.0533, 0.5]
    """
    values = np.asarray(p, float)
    n = len(values)
    order = np.argsort(values, kind="stable")
    worse = values[order] * n / (np.arange(n) + 1)
    out = np.empty(n)
    out[order] = np.minimum(1.0, np.minimum.accumulate(worse[::-1])[::-1])
    return out


def fewest_clients(methods: int) -> int:
    """How many clients a sign-flip test over clients needs to be able to give p ≤ 5% after Holm
    over so many methods.

    >>> fewest_clients(1), fewest_clients(2), fewest_clients(10)
    (6, 7, 9)
    """
    k = FEWEST
    while methods * 2.0 / 2**k > LEVEL:
        k += 1
    return k
