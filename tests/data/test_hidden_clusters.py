"""Hidden clusters: clients whose samples differ by a rule that nobody is told."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.data import clusters


def test_clusters_are_of_equal_size_and_follow_the_seed() -> None:
    found = clusters.drawn(11, 3, 0)
    assert sorted(np.bincount(found).tolist()) == [3, 4, 4]
    assert (clusters.drawn(11, 3, 0) == found).all()
    assert any((clusters.drawn(11, 3, s) != found).any() for s in (1, 2))
    with pytest.raises(InvalidInput, match="hidden is 4, but there are 3 clients"):
        clusters.drawn(3, 4, 0)


def test_labels_have_other_names_in_every_cluster() -> None:
    orders = clusters.label_orders(3, 6, 0)
    assert len({tuple(o) for o in orders}) == 6
    assert orders[0].tolist() == [0, 1, 2]
    x, y = np.zeros((4, 2)), np.array([0, 1, 2, 2])
    of = np.array([0, 1, 1, -1])
    same, named = clusters.hide(x, y, of, "permute", orders)
    assert same is x
    assert named.tolist() == [0, orders[1][1], orders[1][2], 2]


def test_pictures_are_turned() -> None:
    x = np.arange(2 * 9).reshape(2, 3, 3, 1)
    orders = clusters.label_orders(2, 2, 0)
    turned, y = clusters.hide(x, np.array([0, 1]), np.array([0, 3]), "rotate", orders)
    np.testing.assert_array_equal(turned[0], x[0])
    np.testing.assert_array_equal(np.rot90(turned[1], 1), x[1])
    assert y.tolist() == [0, 1]
    with pytest.raises(InvalidInput, match="no square pictures"):
        clusters.hide(np.zeros((1, 5)), np.zeros(1, int), np.zeros(1, int), "rotate", orders)
    with pytest.raises(InvalidInput, match="4 quarter turns"):
        clusters.hide(x, np.zeros(2, int), np.array([0, 4]), "rotate", orders)


def test_synthetic_clients_of_a_cluster_share_their_rule() -> None:
    fed = coterie.load("synthetic", clients=8, hidden=2, sizes="equal", mean_size=60, features=5)
    of = np.array(fed.facts["cluster"])
    x, y = fed.train.client(0)
    for k in range(1, 8):
        # A rule that fits client 0's samples and k's at once exists only within a cluster.
        more = fed.train.client(k)
        both = np.concatenate([x, more[0]]), np.concatenate([y, more[1]])
        assert fits(*both) or of[k] != of[0]
    assert fed.subset(np.array([1, 3])).facts["cluster"] == [of[1], of[3]]
    plain = coterie.load("synthetic", clients=8, sizes="equal", mean_size=60, features=5)
    assert "cluster" not in plain.facts


def fits(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a linear rule gives all labels (by linear programming over class pairs)."""
    from scipy.optimize import linprog

    classes, d = np.unique(y), x.shape[1] + 1
    place = {c: i for i, c in enumerate(classes)}
    ones = np.concatenate([x, np.ones((len(x), 1))], 1)
    rows = []
    for xi, yi in zip(ones, y, strict=True):
        for c in classes:
            if c != yi:
                row = np.zeros(len(classes) * d)
                row[place[yi] * d : (place[yi] + 1) * d] = -xi
                row[place[c] * d : (place[c] + 1) * d] = xi
                rows.append(row)
    a = np.array(rows)
    found = linprog(np.zeros(a.shape[1]), a, -1e-6 * np.ones(len(a)), bounds=(None, None))
    return bool(found.status == 0)


@pytest.mark.parametrize("by", clusters.KINDS)
def test_mnist_with_hidden_clusters(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.data.mnist import Mnist

    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (400, 4, 4, 1)).astype(np.uint8)
    labels = np.arange(400).astype(np.uint8) % 10
    monkeypatch.setattr(Mnist, "pictures", lambda self: (pictures, labels))
    options = {"clients": 8, "split": "iid", "standardise": False}
    plain = Mnist(**options).load(0)
    made = Mnist(**options, hidden=2, hidden_by=by).load(0)
    of = made.facts["cluster"]
    assert sorted(of) == [0] * 4 + [1] * 4
    for k in range(8):
        (x, y), (px, py) = made.train.client(k), plain.train.client(k)
        same = np.array_equal(x, px) and np.array_equal(y, py)
        assert same == (of[k] == 0)
        if of[k] and by == "rotate":
            back = np.rot90(x.reshape(-1, 4, 4), -1, axes=(1, 2)).reshape(len(x), -1)
            np.testing.assert_array_equal(back, px)


def test_without_clusters_the_rule_has_no_meaning() -> None:
    with pytest.raises(InvalidInput, match="hidden is 1"):
        coterie.load("mnist", hidden_by="rotate")
