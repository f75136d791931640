"""The predicted time of rounds: by hand on small federations, by properties on others."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.coupling.graph import from_matrix, ring
from coterie.methods.base import get_method
from coterie.network import WINDOW, LinkSpeeds, Network, Wires, peer_time, stalls, star_time
from coterie.network.forecast import forecast
from tests.support.bills import FREE, bill, links


def test_two_clients_of_a_hub_by_hand() -> None:
    rows = bill(3, [1000, 500], [2000, 2000], [10, 1])
    found = star_time(
        Network(**FREE), rows, links([0.1, 0.01], [100, 1000], [200, 1e4], [0.5, 1.0])
    )
    first = (
        0.1 + 2000 / 200 + 10 * 0.5 + 0.1 + 1000 / 100
    )  # 25.2; the second needs 0.01 + 0.2 + 1 + 0.01 + 0.5
    np.testing.assert_allclose(found.seconds, [first, 2 * first, 3 * first])
    assert found.rounds.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.after([0, 2]), [0, 2 * first])


def test_latency_alone_is_one_round_trip() -> None:
    assert star_time(
        Network(**FREE), bill(5, [8] * 4, 8, 0), links([0.1] * 4)
    ).total == pytest.approx(5 * 0.2)


def test_a_hub_shares_its_bandwidth() -> None:
    rows, at = bill(1, [100] * 4, [300] * 4, 0), links([0.0] * 4)
    assert star_time(Network(**FREE, hub_up=100.0), rows, at).total == pytest.approx(12.0)
    assert star_time(Network(**FREE, hub_down=100.0), rows, at).total == pytest.approx(4.0)


def test_a_hub_takes_answers_one_after_the_other() -> None:
    quick = {**FREE, "message_seconds": 1.0, "round_seconds": 0.5}
    rows = bill(1, [0] * 3, 0, 0)
    assert star_time(Network(**quick), rows, links([0.0] * 3)).total == pytest.approx(3.5)
    # The third comes when the others are long taken.
    assert star_time(Network(**quick), rows, links([0.0, 0.0, 5.0])).total == pytest.approx(11.5)


def test_a_ring_of_three_by_hand() -> None:
    # Everybody sends 100 bytes to each of two neighbours; peer 0 works for 4 s, the others for 1 s;
    # a message takes 1 s + 100 B / 50 B/s = 3 s.
    rows = bill(2, [200] * 3, 200, 1)
    found = peer_time(
        Network(**FREE), rows, links([1.0] * 3, 100.0, np.inf, [4.0, 1.0, 1.0]), ring(3)
    )
    # Round 0: 0 sends at 4, is heard at 7; the others send at 1, are heard at 4. Ready: 0 at 4, the
    # others at 7. Round 1: 0 sends at 8, is heard at 11; the others send at 8, are heard at 11.
    # Ready: all at 11.
    np.testing.assert_allclose(found.seconds, [7, 11])


def test_peers_wait_for_neighbours_only() -> None:
    # A path 0 – 1 – 2 – 3: that 0 is slow reaches 3 two rounds later than 1.
    weights = np.zeros((4, 4))
    weights[[0, 1, 2], [1, 2, 3]] = weights[[1, 2, 3], [0, 1, 2]] = 1
    at = links([0.0] * 4, np.inf, np.inf, [10.0, 1.0, 1.0, 1.0])
    found = peer_time(Network(**FREE), bill(3, [1] * 4, 1, 1), at, from_matrix(weights))
    np.testing.assert_allclose(found.seconds, [10, 20, 30])
    rows = bill(3, [1] * 4, 1, 1)
    only_first = rows[:, 0] == 0
    rows[(rows[:, 1] == 0) & ~only_first, 4] = 1
    np.testing.assert_allclose(
        peer_time(
            Network(**FREE), rows, links([0.0] * 4, gradient=[1.0] * 4), from_matrix(weights)
        ).seconds,
        [1, 2, 3],
    )


def test_a_lonely_peer_waits_for_nobody() -> None:
    weights = np.zeros((3, 3))
    weights[0, 1] = weights[1, 0] = 1
    found = peer_time(
        Network(**FREE),
        bill(2, [1, 1, 0], [1, 1, 0], 1),
        links([1.0] * 3, gradient=[1.0] * 3),
        from_matrix(weights),
    )
    np.testing.assert_allclose(found.seconds, [2, 4])


def test_slow_start_by_hand() -> None:
    inf, trip = np.array([np.inf]), np.array([0.1])
    # Without a limit: 1, 2, 4, … windows per round trip, and no wait after the last.
    for windows, trips in ((1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3)):
        np.testing.assert_allclose(stalls(np.array([windows * WINDOW]), inf, trip), [trips * 0.1])
    # A link that a first window fills never waits.
    np.testing.assert_allclose(stalls(np.array([1e9]), np.array([WINDOW / 0.2]), trip), [0.1])
    # One window takes 0.04 s: gaps of 0.1, 0.1 − 0.04, 0.1 − 0.12 < 0 after it (a window is on the
    # wire while its acknowledgements come).
    gaps = [0.1 + 0.04 - 0.04 * 2**i for i in range(3)]
    np.testing.assert_allclose(
        stalls(np.array([1e9]), np.array([WINDOW / 0.04]), trip), [sum(g for g in gaps if g > 0)]
    )


def test_a_window_by_hand() -> None:
    """A message of 2.5 windows over 0.1 s one way: a window, a wait of a round trip, and the rest;
    later, it depends on the silence.
    """
    one, size, inf, latency = (
        np.array([0]),
        np.array([2.5 * WINDOW]),
        np.array([np.inf]),
        np.array([0.1]),
    )

    def after(pause: float) -> float:
        wires = Wires(Network(), 1)
        assert wires.carry(one, np.array([5.0]), size, inf, latency) == pytest.approx(0.3)
        assert wires.window == pytest.approx(
            3 * WINDOW
        )  # twice the larger flight: 1 and 1.5 windows
        assert wires.last == pytest.approx(5.2)  # it ends to send a round trip after it began
        return float(wires.carry(one, np.array([5.2 + pause]), size, inf, latency)[0])

    assert after(0.39) == pytest.approx(0.1)  # the timeout is 0.2 + 0.2 s: the window holds
    assert after(0.41) == pytest.approx(0.3)  # halved to 1.5 windows
    assert after(100.0) == pytest.approx(0.3)
    assert Wires(Network(slow_start=False), 1).carry(
        one, np.array([0.0]), size, inf, latency
    ) == pytest.approx(0.1)


def test_a_window_grows_no_further_than_messages_fill_it() -> None:
    one, inf, latency = np.array([0]), np.array([np.inf]), np.array([0.1])
    wires = Wires(Network(), 1)
    for t in range(20):
        wires.carry(one, np.array([t / 10]), np.array([0.6 * WINDOW]), inf, latency)
    assert wires.window == pytest.approx(1.2 * WINDOW)
    for t in range(20, 40):
        wires.carry(one, np.array([t / 10]), np.array([40 * WINDOW]), inf, latency)
    assert wires.window == pytest.approx(80 * WINDOW)


def test_training_alone_needs_no_network() -> None:
    found = forecast(
        Network(**FREE),
        bill(2, [0, 0], 0, [1, 3]),
        get_method("local"),
        2,
        links=links([9.0, 9.0], gradient=[1.0, 1.0]),
    )
    np.testing.assert_allclose(found.seconds, [3, 6])


def random_bill(rng: np.random.Generator, n: int, rounds: int = 4) -> np.ndarray:
    up = rng.integers(1, 200_000, n)
    return bill(rounds, up, rng.integers(1, 200_000, n), rng.integers(0, 50, n))


@pytest.mark.parametrize("case", range(10))
@pytest.mark.parametrize("method", ["fedavg", "dfedu"])
def test_a_better_network_is_never_slower(method: str, case: int) -> None:
    rng = np.random.default_rng(case)
    n = 6
    rows, graph = random_bill(rng, n), ring(n)
    base = {
        "latency": rng.uniform(0, 0.2),
        "up": 10 ** rng.uniform(3, 7),
        "down": 10 ** rng.uniform(3, 7),
        "spread": rng.uniform(0, 1),
        "jitter": 0.01,
    }
    worse = {
        key: value * (2 if key in ("latency", "jitter") else 0.5)
        for key, value in base.items()
        if key != "spread"
    }
    time = lambda **options: (
        forecast(Network(**options), rows, get_method(method), n, graph=graph).seconds
    )
    now = time(**base)
    assert (np.diff(now, prepend=0) > 0).all()
    for key, value in worse.items():
        assert (time(**{**base, key: value}) >= now - 1e-9).all(), key
    assert (time(**{**base, "gradient_seconds": 0.1}) >= now).all()


@pytest.mark.parametrize("case", range(3))
def test_it_does_not_matter_how_clients_are_numbered(case: int) -> None:
    rng = np.random.default_rng(case)
    n = 7
    weights = np.triu(rng.random((n, n)) < 0.5, 1).astype(float)
    weights += weights.T
    rows = random_bill(rng, n)
    at = links(
        rng.uniform(0, 0.1, n),
        rng.uniform(1e4, 1e6, n),
        rng.uniform(1e4, 1e6, n),
        rng.uniform(0, 0.01, n),
    )
    place = rng.permutation(n)  # client k becomes place[k]
    order = np.argsort(place)
    moved_rows = rows.copy()
    moved_rows[:, 1] = place[rows[:, 1]]
    moved = LinkSpeeds(*(a[order] for a in at))
    np.testing.assert_allclose(
        star_time(Network(), moved_rows, moved).seconds, star_time(Network(), rows, at).seconds
    )
    other = from_matrix(weights[np.ix_(order, order)])
    np.testing.assert_allclose(
        peer_time(Network(), moved_rows, moved, other).seconds,
        peer_time(Network(), rows, at, from_matrix(weights)).seconds,
    )


def test_clients_differ_by_the_networks_seed() -> None:
    a, b, c = (
        Network(up=1e5, spread=0.5).links(9),
        Network(up=1e5, spread=0.5).links(9),
        Network(up=1e5, spread=0.5, seed=1).links(9),
    )
    assert all((x == y).all() for x, y in zip(a, b, strict=True))
    assert len(set(a.latency)) == 9
    assert np.isinf(a.down).all()
    assert (a.up != c.up).all()
    assert (Network(spread=0.5).links(9).gradient == 1e-3).all()
    many = Network(latency=0.05, spread=0.7).links(4000).latency
    assert np.median(many) == pytest.approx(0.05, rel=0.05)
    assert np.log(many).std() == pytest.approx(0.7, rel=0.05)
