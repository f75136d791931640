"""Channels inside rounds: the compiled simulator equals one client at a time over real bytes;
stores, checkpoints and bills include the links.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, Result, Training
from coterie.channel import CHANNELS, Channel, get_channel
from coterie.channel.link import HEADER
from coterie.engine.reference import simulate_slowly
from coterie.engine.simulate import Simulator
from coterie.runs.checkpoint import Checkpoints

OPTIONS: dict[str, Any] = {
    "rounds": 4,
    "eval_every": 2,
    "batch_size": 4,
    "precision": "float64",
    "cohort": 3,
}
SMALL: dict[str, dict[str, Any]] = {
    "plain": {"values": "int8", "down": True},
    "top-k": {"k": 3, "values": "float16"},
    "random-k": {"k": 4},
    "delta": {"k": 4},
    "qsgd": {"levels": 8, "bucket": 16, "down": True},
    "sketch": {"k": 3, "rows": 3},
    "subspace": {"k": 5},
    "dgc": {"k": 3, "warmup": 2},
    "lbgm": {"threshold": 0.5},
}


def channel(name: str, **more: Any) -> Channel:
    return get_channel(name, {**SMALL[name], **more})


def ring() -> coterie.Graph:
    return coterie.graph.ring(5, 0.7)


def flat(result: Result) -> np.ndarray:
    return np.concatenate(
        [leaf.reshape(len(leaf), -1) for leaf in result.simulator.all_models().leaves], axis=1
    )


def alike(fast: Result, slow: Result) -> None:
    np.testing.assert_allclose(flat(fast), flat(slow), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(fast.ledger.rows(), slow.ledger.rows())
    for a, b in zip(fast.snapshots, slow.snapshots, strict=True):
        np.testing.assert_allclose(a.scores["test"].loss, b.scores["test"].loss, rtol=1e-9)


def test_every_channel_is_tried() -> None:
    assert set(SMALL) == set(CHANNELS)


def thinned(*kept: str) -> list[Any]:
    """All channels, those beyond `kept` as long checks: what a channel does by itself is tested in
    tests/channel.
    """
    return [name if name in kept else pytest.param(name, marks=pytest.mark.slow) for name in SMALL]


@pytest.mark.parametrize("name", thinned("delta", "dgc"))
def test_star_over_every_channel_equals_one_by_one(name: str, ragged: Federation) -> None:
    method = coterie.FedAvg(lr=0.1, local_steps=2)
    fast, slow = (
        run(method, ragged, channel=channel(name), **OPTIONS)
        for run in (coterie.simulate, simulate_slowly)
    )
    alike(fast, slow)
    assert not np.allclose(
        flat(fast), flat(coterie.simulate(method, ragged, **OPTIONS)), atol=1e-6
    ), "the channel does nothing"


@pytest.mark.parametrize("name", thinned("dgc"))
def test_graph_over_every_channel_equals_one_by_one(name: str, ragged: Federation) -> None:
    method = coterie.FedU(lr=0.1, local_steps=2, eta=0.3, neighbours="all")
    fast, slow = (
        run(method, ragged, graph=ring(), channel=channel(name), **OPTIONS)
        for run in (coterie.simulate, simulate_slowly)
    )
    alike(fast, slow)


@pytest.mark.parametrize(
    ("method", "more", "memory"),
    [
        (coterie.DFedU(lr=0.1, local_steps=2, eta=0.3), {"cohort": None}, "errors"),
        pytest.param(
            coterie.GraphProj(lr=0.1, local_steps=2, eta=0.3, dsub=4, p=1.5),
            {},
            "errors",
            marks=pytest.mark.slow,
        ),
        (coterie.PFedMe(lr=0.1, local_rounds=2, inner_steps=2), {}, "errors"),
        pytest.param(
            coterie.PFedMe(lr=0.1, local_rounds=2, inner_steps=2),
            {},
            "copies",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda v: getattr(v, "name", v if isinstance(v, str) else ""),
)
def test_the_delta_channel_both_ways_equals_one_by_one(
    method: coterie.Method, more: dict[str, Any], memory: str, ragged: Federation
) -> None:
    options, through = {**OPTIONS, **more}, channel("delta", k=2, memory=memory)
    fast, slow = (
        run(method, ragged, graph=ring(), channel=through, **options)
        for run in (coterie.simulate, simulate_slowly)
    )
    alike(fast, slow)


@pytest.mark.parametrize(
    ("method", "through", "more"),
    [
        (coterie.FedU(lr=0.1, local_steps=2, eta=0.3), {"name": "plain"}, {}),
        pytest.param(
            coterie.FedU(lr=0.1, local_steps=2, eta=0.3),
            {"name": "delta", "k": 4},
            {"rounds": 8},
            marks=pytest.mark.slow,
        ),
        (
            coterie.FedAvg(lr=0.1, local_steps=2),
            {"name": "plain", "values": "int8", "memory": "errors", "down": True},
            {},
        ),
        pytest.param(
            coterie.DFedU(lr=0.1, local_steps=2, eta=0.3),
            {"name": "lbgm"},
            {"cohort": None},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["graph", "graph-delta", "star", "peers-lbgm"],
)
def test_quiet_messages_are_notes(
    method: coterie.Method, through: dict[str, Any], more: dict[str, Any], ragged: Federation
) -> None:
    """Who has hardly moved sends a note, and counts with what the other end has."""
    name = through["name"]
    given = {k: v for k, v in through.items() if k != "name"}
    options = {**OPTIONS, "rounds": 6, **more}
    quiet = get_channel(name, {**given, "quiet": 0.3})
    fast, slow = (
        run(method, ragged, graph=ring(), channel=quiet, **options)
        for run in (coterie.simulate, simulate_slowly)
    )
    alike(fast, slow)
    always = coterie.simulate(
        method, ragged, graph=ring(), channel=get_channel(name, given), **options
    )
    assert 0 < fast.ledger.up < always.ledger.up
    assert fast.ledger.rows()[:, 2].min() <= 2 * HEADER, "a note to each neighbour"


def test_nobody_is_quiet_who_has_moved(ragged: Federation) -> None:
    method = coterie.FedU(lr=0.1, local_steps=2, eta=0.3)
    run = lambda c: coterie.simulate(method, ragged, graph=ring(), channel=c, **OPTIONS)
    np.testing.assert_allclose(
        flat(run(get_channel("plain", {"quiet": 0.0}))), flat(run("plain")), rtol=1e-12
    )


def test_only_stars_have_a_choice_of_memory(ragged: Federation) -> None:
    """Neighbours go over public copies whatever `memory` says, to the bit; a star's updates do
    not.
    """
    for method, same in (
        (coterie.FedU(lr=0.1, local_steps=2, eta=0.3), True),
        (coterie.FedAvg(lr=0.1, local_steps=2), False),
    ):
        errors, copies = (
            flat(
                coterie.simulate(
                    method, ragged, graph=ring(), channel=channel("delta", memory=memory), **OPTIONS
                )
            )
            for memory in ("errors", "copies")
        )
        assert (errors.tobytes() == copies.tobytes()) == same


@pytest.mark.parametrize("store", ["host", "file"])
def test_links_live_in_any_store(store: str, ragged: Federation) -> None:
    method = coterie.FedU(lr=0.1, local_steps=2, eta=0.3, neighbours="all")
    device, other = (
        coterie.simulate(
            method, ragged, graph=ring(), channel=channel("delta"), **OPTIONS, store=kind
        )
        for kind in ("device", store)
    )
    alike(device, other)


def test_a_client_that_missed_messages_pays_for_them_when_it_comes_back(ragged: Federation) -> None:
    """A star's hub speaks to all over one link: who takes part again gets what it missed, or a
    whole copy if that is shorter.
    """
    c = get_channel(
        "top-k", {"k": 2, "values": "full", "indices": "raw", "memory": "copies", "down": True}
    )
    result = coterie.simulate(
        coterie.FedAvg(lr=0.1, local_steps=1),
        ragged,
        channel=c,
        **{**OPTIONS, "rounds": 12, "cohort": 1},
    )
    rows = result.ledger.rows()
    each, whole = HEADER + 2 * (8 + 4), HEADER + 15 * 8
    last = dict.fromkeys(range(5), -1)
    for t, client, up, down, _ in rows:
        assert up == each
        assert down == min((t - last[client]) * each, whole)
        last[client] = t
    assert (rows[:, 3] == whole).any()
    assert (rows[:, 3] == each).any()


def simulator(ragged: Federation, method: coterie.Method, folder: Path) -> Simulator:
    options = Training.from_config({**OPTIONS, "rounds": 6, "cohort": 2, "store": "file"})
    return Simulator(
        method, ragged, "mlr", options, ring(), folder=folder, channel=channel("delta")
    )


def test_what_has_not_reached_the_clients_is_not_forgotten(ragged: Federation) -> None:
    """A hub whose model is ahead of what its clients have: they change nothing (their steps are too
    small), so nor does it.
    """
    options = Training.from_config({**OPTIONS, "rounds": 1})
    simulator = Simulator(
        coterie.FedAvg(lr=1e-30), ragged, "mlr", options, channel=channel("delta", k=1)
    )
    with simulator.precision():
        moved = simulator.hub.map(lambda leaf: leaf + 1.0)
        expected = moved.map(np.array).flat()  # a round reuses the memory of what it is given
        simulator.hub_state = simulator.hub_state._replace(method_state=moved)
        simulator.advance(1)
        np.testing.assert_allclose(simulator.hub.flat(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [coterie.FedU(local_steps=2, neighbours="all"), coterie.FedAvg(local_steps=2)],
    ids=lambda m: m.name,
)
def test_links_are_part_of_checkpoints(
    method: coterie.Method, ragged: Federation, tmp_path: Path
) -> None:
    for part in ("whole", "first", "second", "run"):
        (tmp_path / part).mkdir()
    whole, first, second = (
        simulator(ragged, method, tmp_path / part) for part in ("whole", "first", "second")
    )
    while whole.t < 6:
        whole.advance(6)
    while first.t < 3:
        first.advance(1)
    Checkpoints(tmp_path / "run", "same", {}).write(first)
    assert Checkpoints(tmp_path / "run", "same", {}).restore(
        second, lambda sentence: pytest.fail(sentence)
    )
    while second.t < 6:
        second.advance(6)
    everyone = np.arange(5)
    assert second.store.packed(everyone).tobytes() == whole.store.packed(everyone).tobytes()
    for a, b in zip(
        jax.tree.leaves(second.hub_state), jax.tree.leaves(whole.hub_state), strict=True
    ):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    np.testing.assert_array_equal(second.ledger.rows()[-4:], whole.ledger.rows()[-4:])
    assert second.ledger.totals() == whole.ledger.totals()


def test_the_delta_channel_stays_near_fedu_at_a_fraction_of_its_bytes() -> None:
    """The models over a delta channel of 5% are nearer to FedU's than training alone is, for less
    than a twentieth of the bytes each way.
    """
    fed = coterie.load("digits", clients=4)
    method, options = coterie.FedU(eta=0.3, local_steps=5), {"rounds": 40, "eval_every": 40}
    alone = flat(coterie.simulate(coterie.equal_compute(method), fed, **options))
    full = coterie.simulate(method, fed, **options)
    delta = coterie.simulate(method, fed, channel=get_channel("delta", {"share": 0.05}), **options)
    assert full.ledger.up > 20 * delta.ledger.up
    assert full.ledger.down > 20 * delta.ledger.down
    distance = lambda models: np.linalg.norm(models - flat(full))
    assert distance(flat(delta)) < 0.5 * distance(alone)


def test_a_method_that_needs_exact_messages_refuses_a_lossy_channel(ragged: Federation) -> None:
    with pytest.raises(
        InvalidInput, match="the channel is 'delta', but mocha needs its messages as they are"
    ):
        Simulator("mocha", ragged, "mlr", Training(rounds=1), channel="delta")


def test_a_channel_that_is_no_contraction_is_refused_over_public_copies(ragged: Federation) -> None:
    for options in ({"name": "qsgd"}, {"name": "random-k", "scaled": True, "memory": "none"}):
        coarse = get_channel(options.pop("name"), options)
        Simulator("fedavg", ragged, "mlr", Training(rounds=1), channel=coarse)
        with pytest.raises(InvalidInput, match="may send more error than there was to send"):
            Simulator("fedu", ragged, "mlr", Training(rounds=1), channel=coarse)


def test_public_copies_track_the_models(ragged: Federation) -> None:
    """With a message that hardly moves, copies and models come together: nothing is lost, only
    late.
    """
    method = coterie.FedU(lr=1e-9, local_steps=1, eta=0.5, mix_lr=0.2)
    c = get_channel("delta", {"k": 5, "values": "full", "down": False})
    sim = Simulator(
        method,
        ragged,
        "mlr",
        Training.from_config({**OPTIONS, "cohort": None, "rounds": 8}),
        ring(),
        channel=c,
    )
    while sim.t < 8:
        sim.advance(8)
    copies, models = sim.store.rows.up.public.copy, flat_rows(sim)
    np.testing.assert_allclose(copies, models, atol=1e-8)


def flat_rows(sim: Simulator) -> np.ndarray:
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in sim.all_models().leaves], axis=1)
