"""Who owns which sample: rules that split one labelled data set into clients.

Every rule gives one number per sample, the client that owns it (−1: nobody), so no sample can be in
two places. Rules draw from the generator they are given; the two that repeat a published draw seed
generators of their own. None touches numpy's or Python's global state.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, unknown
from coterie.data import pfedme_draw
from coterie.data.federation import Federation, Split

Owners = NDArray[np.int64]
SIZES = ("equal", "log-normal", "power-law", "linear", "square", "exponential")


# ---- how much each client gets -------------------------------------------------------------------


def size_weights(
    kind: str, clients: int, rng: np.random.Generator, *, spread: float = 1.0, exponent: float = 1.5
) -> NDArray[np.float64]:
    """Relative sizes of the clients: all alike, exp(spread · N(0, 1)), or Pareto, P(weight > w) =
    w^−exponent; or client k has k + 1, (k + 1)² or e^(k + 1), as flwr-datasets' partitioners of
    these names have it.
    """
    if clients < 1:
        raise InvalidInput(f"the number of clients is {clients}, but must be a whole number ≥ 1.")
    if kind == "equal":
        return np.ones(clients)
    if kind == "log-normal":
        return np.exp(spread * rng.standard_normal(clients))
    if kind == "power-law":
        if not exponent > 0:
            raise InvalidInput(
                f"the exponent of the power law is {exponent!r}, but must be a number > 0."
            )
        return np.asarray((1.0 - rng.random(clients)) ** (-1.0 / exponent))
    if kind in ("linear", "square", "exponential"):
        k = np.arange(1.0, clients + 1)
        return k if kind == "linear" else k**2 if kind == "square" else np.exp(k - clients)
    raise unknown("the size rule", kind, SIZES)


def dirichlet_sizes(clients: int, alpha: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Quantity skew: the clients' shares of all samples are drawn from Dir_N(α)."""
    if not alpha > 0:
        raise InvalidInput(f"alpha is {alpha!r}, but must be a number > 0.")
    share = rng.dirichlet(np.full(clients, alpha))
    return np.maximum(np.nan_to_num(share), np.finfo(float).tiny)


def apportion(total: int, weights: NDArray[Any], minimum: int = 1) -> NDArray[np.int64]:
    """Share `total` out in whole numbers ∝ weights (largest remainders), nobody below `minimum`;
    the sum is exactly `total`.

    >>> apportion(10, np.array([1.0, 1.0, 7.0]), minimum=2)
    array([2, 2, 6])
    """
    n = len(weights)
    if n * minimum > total:
        what = f"{n} clients with at least {minimum} sample{'s' if minimum != 1 else ''} each"
        raise InvalidInput(
            f"{what} are asked for, but there are only {total} samples; use fewer clients."
        )
    weights = np.asarray(weights, np.float64)
    sizes = np.full(n, minimum, np.int64)
    free = np.ones(n, bool)
    # Those whose share is below the minimum get the minimum; what is left is shared among the
    # others, until nobody falls below.
    while free.any():
        left = total - minimum * int((~free).sum())
        share = left * weights / weights[free].sum()
        low = free & (share < minimum)
        if not low.any():
            whole = np.floor(share[free]).astype(np.int64)
            short = left - int(whole.sum())
            order = np.argsort(whole - share[free], kind="stable")
            whole[order[:short]] += 1
            sizes[free] = whole
            break
        free &= ~low
    return sizes


# ---- who gets what -------------------------------------------------------------------------------


def natural(values: Sequence[Any] | NDArray[Any]) -> tuple[Owners, list[str]]:
    """One client per distinct value (a subject, a sensor, a site), in sorted order: the owners and
    the clients' names.
    """
    names, owner = np.unique(np.asarray(values), return_inverse=True)
    return owner.reshape(-1).astype(np.int64), [str(name) for name in names]


def iid(
    samples: int, weights: NDArray[Any], rng: np.random.Generator, *, minimum: int = 1
) -> Owners:
    """Samples dealt at random, in amounts ∝ weights."""
    owner = np.empty(samples, np.int64)
    owner[rng.permutation(samples)] = np.repeat(
        np.arange(len(weights)), apportion(samples, weights, minimum)
    )
    return owner


def labels_per_client(
    y: NDArray[Any],
    clients: int,
    fewest: int,
    most: int,
    rng: np.random.Generator,
    *,
    spread: float = 0.0,
    weights: NDArray[Any] | None = None,
) -> Owners:
    """The owner of each sample when every client holds between `fewest` and `most` of the classes.

    Classes are dealt in turn, so each is held by about as many clients as any other; each class's
    samples are then shared among its holders: ∝ the clients' `weights` if given, else equally
    (`spread` = 0) or in proportions exp(spread · N(0, 1)) drawn per class. Every holder of a class
    gets at least one sample of it.
    """
    classes = np.unique(y)
    if not 1 <= fewest <= most:
        raise InvalidInput(
            f"labels per client run from {fewest} to {most}; they must satisfy 1 ≤ fewest ≤ most."
        )
    if most > len(classes):
        raise InvalidInput(
            f"{most} labels per client are asked for, but the data has only {len(classes)} labels."
        )
    _enough(len(y), clients, 1)
    counts = rng.integers(fewest, most + 1, clients)
    holders: dict[int, list[int]] = {int(c): [] for c in classes}
    for k in rng.permutation(clients):
        # The classes with the fewest holders so far come first; ties are broken at random.
        ranked = sorted(holders, key=lambda c: (len(holders[c]), rng.random()))
        for c in ranked[: counts[k]]:
            holders[c].append(int(k))
    owner = np.full(len(y), -1, np.int64)
    for c, owners in holders.items():
        rows = rng.permutation(np.flatnonzero(y == c))
        if not owners:
            continue
        if len(owners) > len(rows):
            raise InvalidInput(
                f"class {c} has {len(rows)} samples but {len(owners)} clients hold it; use fewer"
                " clients or labels."
            )
        if weights is not None:
            owner[rows] = np.repeat(owners, apportion(len(rows), weights[owners]))
            continue
        share = np.exp(spread * rng.standard_normal(len(owners)))
        cuts = np.floor(np.cumsum(share / share.sum()) * (len(rows) - len(owners)) + 1e-9).astype(
            int
        ) + np.arange(1, len(owners) + 1)
        cuts[-1] = len(rows)
        for k, part in zip(owners, np.split(rows, cuts[:-1]), strict=True):
            owner[part] = k
    return owner


def dirichlet(
    y: NDArray[Any], clients: int, alpha: float, rng: np.random.Generator, *, minimum: int = 1
) -> Owners:
    """Dir_N(α): each class is shared among all clients in proportions drawn from a symmetric
    Dirichlet distribution.

    Small α gives a class to few clients, large α to all alike. It is drawn once: clients left below
    `minimum` are then filled up with random samples of whoever is largest at that moment, so the
    rule always ends (redrawing until all are large enough may not).
    """
    if not alpha > 0:
        raise InvalidInput(f"alpha is {alpha!r}, but must be a number > 0.")
    _enough(len(y), clients, minimum)
    owner = np.empty(len(y), np.int64)
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        share = rng.dirichlet(np.full(clients, alpha))
        if (
            not np.isfinite(share).all() or share.sum() <= 0
        ):  # α so small that every proportion underflows: one client takes all
            share = np.zeros(clients)
            share[rng.integers(clients)] = 1.0
        cuts = np.round(np.cumsum(share / share.sum()) * len(rows)).astype(int)
        owner[rows] = np.repeat(np.arange(clients), np.diff(cuts, prepend=0))
    sizes = np.bincount(owner, minlength=clients)
    for k in np.flatnonzero(sizes < minimum):
        while sizes[k] < minimum:
            rich = int(sizes.argmax())
            # While somebody is below the minimum somebody is above it (there are enough samples),
            # so this is at least 1.
            spare = min(minimum - int(sizes[k]), int(sizes[rich]) - minimum)
            owner[rng.choice(np.flatnonzero(owner == rich), spare, replace=False)] = k
            sizes[rich] -= spare
            sizes[k] += spare
    return owner


def thin(owner: Owners, y: NDArray[Any], mean: int, rng: np.random.Generator) -> Owners:
    """Keep about `mean` samples per client (every client the same share of what it has, at least
    one of each label it holds).
    """
    n = int(owner.max()) + 1
    share = mean * n / max(int((owner >= 0).sum()), 1)
    if share > 1:
        raise InvalidInput(
            f"{mean} samples per client are asked for, but there are only"
            f" {int((owner >= 0).sum()) // n} for each of the {n} clients."
        )
    kept = owner.copy()
    for k in range(n):
        rows = np.flatnonzero(owner == k)
        labels, counts = np.unique(y[rows], return_counts=True)
        size = max(round(len(rows) * share), len(labels))
        keep = apportion(size, counts)
        for label, count in zip(labels, np.minimum(keep, counts), strict=True):
            mine = rng.permutation(rows[y[rows] == label])
            kept[mine[count:]] = -1
    return kept


def _enough(samples: int, clients: int, minimum: int) -> None:
    if clients < 1:
        raise InvalidInput(f"the number of clients is {clients}, but must be a whole number ≥ 1.")
    if samples < clients * minimum:
        each = "" if minimum == 1 else f" with at least {minimum} each"
        raise InvalidInput(
            f"{clients} clients{each} are asked for, but the data has only {samples} samples."
        )


# ---- the papers' splits --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Growth:
    """How much of a label a client of the FedU recipe takes after its first ten: ⌊p⌋ · U{factor} +
    U{wide} + plus.
    """

    wide: tuple[int, int] = (10, 100)
    factor: tuple[int, int] | None = (1, 10)
    plus: int = 150

    def __call__(self, p: float, draw: random.Random) -> int:
        wide = draw.randint(*self.wide)
        return int(p) * (draw.randint(*self.factor) if self.factor else 1) + wide + self.plus


FEDU_MNIST = Growth()
FEDU_CIFAR = Growth(wide=(300, 600), factor=None, plus=0)
FIRST = 10


def fedu(
    y: NDArray[Any], clients: int = 100, labels: int = 2, growth: Growth = FEDU_MNIST, seed: int = 1
) -> Owners:
    """The split behind Table II of the FedU paper (MNIST: 61,866 samples over 100 clients, mean
    618.66, standard deviation 343.8).

    Client u has the labels u, u + 1, … (mod classes). Of each it takes first 10 samples, then an
    amount made of a log-normal(0, 2) table and uniform numbers; an amount that would not leave a
    sample of the label over is skipped. Samples of a label are handed out in the order of the data.
    With 20 clients or fewer the amounts are doubled. The draw is the papers' own (numpy's legacy
    generator and Python's, both with seed 1), so it does not depend on the run's seed. With
    `FEDU_CIFAR`, 20 clients and 3 labels it is the paper's CIFAR-10 split (54,572 samples, mean
    2,729, standard deviation 851.4).
    """
    classes, y = np.unique(y, return_inverse=True)
    c = len(classes)
    if clients < 10 or clients % 10:
        raise InvalidInput(f"clients is {clients}, but the split 'fedu' needs a multiple of 10.")
    if labels > c:
        raise InvalidInput(
            f"{labels} labels per client are asked for, but the data has only {c} labels."
        )
    counts = np.bincount(y, minlength=c)
    pairs = [(u, j, (u + j) % c) for u in range(clients) for j in range(labels)]
    taken = FIRST * np.bincount([label for _, _, label in pairs], minlength=c)
    if np.any(taken > counts) or np.any(counts <= clients):
        short = int(np.argmin(counts - np.maximum(taken, clients + 1)))
        raise InvalidInput(
            f"label {classes[short]} has {counts[short]} samples, too few for {clients} clients of"
            " the split 'fedu'."
        )
    legacy, draw = np.random.RandomState(seed), random.Random(seed)  # the published draw
    table = legacy.lognormal(0, 2.0, (c, clients, labels))
    table = (counts - clients)[:, None, None] * table / table.sum((1, 2), keepdims=True)
    plan = [(label, u, FIRST) for u, _, label in pairs]
    for u, j, label in pairs:
        more = growth(table[label, u // (clients // 10), j], draw) * (2 if clients <= 20 else 1)
        if taken[label] + more < counts[label]:
            taken[label] += more
            plan.append((label, u, more))
    return _hand_out(y, plan)


def pfedme(y: NDArray[Any], clients: int = 20, seed: int = 1) -> Owners:
    """pFedMe's MNIST split for 20 clients with 2 labels each; with a quarter for testing, 1,165 to
    3,834 training samples per client.

    Each label is cut into as many parts as it has holders: all but the last from
    U{total//(holders+1) … total//2 − 1} of what is left (numpy's legacy generator, seed 1). These
    are the published sizes, to the sample: where the authors' script loses one sample of every
    label that was given out before (an offset that became true/false), we lose it too. In that
    script, however, all clients of a label take their samples from its *start*, so clients share
    samples, between one's training and another's test data as well (`pfedme_draw.shared`); here no
    sample is used twice. For that, client u has the labels 2u and 2u + 1 (mod 10), which is the
    order of the parts, instead of u and u + 1.
    """
    y, taken = pfedme_draw.taken(y, clients, seed)
    c = int(y.max()) + 1
    plan = [
        ((2 * u + j) % c, u, int(taken.ends[u, j] - taken.starts[u, j]))
        for u in range(clients)
        for j in range(2)
    ]
    return _hand_out(y, plan)


def _hand_out(y: NDArray[Any], plan: list[tuple[int, int, int]]) -> Owners:
    """(label, client, amount) in this order, each taking the next samples of the label."""
    owner = np.full(len(y), -1, np.int64)
    rows = {label: np.flatnonzero(y == label) for label in {label for label, _, _ in plan}}
    start = dict.fromkeys(rows, 0)
    for label, client, amount in plan:
        owner[rows[label][start[label] : start[label] + amount]] = client
        start[label] += amount
    return owner


# ---- fewer data for some -------------------------------------------------------------------------


def downsample(
    federation: Federation, share: float = 0.2, clients: float = 0.5, seed: int = 0
) -> Federation:
    """FedU's down-sampling: a part of the clients keeps only `share` of its training data (at least
    one sample).

    Which clients and which samples depends on `seed` and the clients' sizes alone, so it is the
    same for every method. `facts["downsampled"]` lists the clients. Validation and test data stay.
    """
    if not 0 < share <= 1:
        raise InvalidInput(
            f"the share of data that down-sampled clients keep is {share!r}, but must be a number >"
            " 0 and ≤ 1."
        )
    if not 0 <= clients <= 1:
        raise InvalidInput(
            f"the share of clients that are down-sampled is {clients!r}, but must be a number ≥ 0"
            " and ≤ 1."
        )
    rng = np.random.default_rng([seed, 0xD043])
    n, train = federation.clients, federation.train
    poor = np.sort(rng.permutation(n)[: round(n * clients)])
    keep = np.ones(len(train), bool)
    for k in poor:
        size = int(train.sizes[k])
        drop = rng.permutation(size)[max(1, round(share * size)) :]
        keep[int(train.offsets[k]) + drop] = False
    sizes = np.add.reduceat(keep, train.offsets[:-1])
    smaller = Split(
        train.x[keep], train.y[keep], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    )
    return dataclasses.replace(
        federation, train=smaller, facts={**federation.facts, "downsampled": [int(k) for k in poor]}
    )
