"""Hub and clients without a wire between them: the same models and bytes as the simulator, through
crashes, losses and nonsense.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from coterie import Federation, load
from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.data.federation import from_arrays
from coterie.deploy import messages
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.hub_round import StarRound
from coterie.deploy.messages import Rejected, Reply, Request
from tests.support.room import CLIENTS, Room, assert_same, make_plan

DELTA = get_channel("delta", {"share": 0.1})
COPIES = DELTA.replace(memory="copies")


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


STARS = [
    pytest.param("lp-proj-1", PLAIN, {"cohort": 2}, id="lp-proj-1, some send"),
    pytest.param("fedavg", DELTA, {"cohort": 2}, id="fedavg, delta, cohort"),
    pytest.param(
        "fedavg",
        COPIES,
        {"cohort": 2},
        id="fedavg, copies of updates, cohort",
        marks=pytest.mark.slow,
    ),
    pytest.param("fedu", PLAIN, {"cohort": 3}, id="fedu, cohort", marks=pytest.mark.slow),
    pytest.param("fedu", DELTA, {}, id="fedu, delta", marks=pytest.mark.slow),
    *(
        pytest.param(
            name,
            channel,
            training,
            id=f"{name}, {channel.name}, {training}",
            marks=pytest.mark.slow,
        )
        for name in (
            "fedavg",
            "fedprox",
            "scaffold",
            "afl",
            "per-fedavg",
            "ditto",
            "rsa",
            "lg-fedavg",
            "apfl",
            "fedper",
            "fedrep",
            "fedbabu",
            "fedala",
            "l2gd",
            "fedu",
            "lp-proj-2",
        )
        for channel in (PLAIN, DELTA, get_channel("qsgd", {"levels": 127}))
        for training in ({}, {"cohort": 2})
    ),
    *(  # hubs that tell each client something of its own, which is not compressed
        pytest.param(name, channel, training, id=f"{name}, {number}", marks=pytest.mark.slow)
        for name in ("fedamp", "pfedgraph", "fedfomo", "cfl", "apple", "sfl")
        for number, (channel, training) in enumerate(
            [(PLAIN, {}), (PLAIN, {"cohort": 2}), (DELTA.replace(down=False), {"cohort": 2})]
        )
    ),
    pytest.param("mocha", PLAIN, {}, id="mocha", marks=pytest.mark.slow),
    pytest.param("knn-per", PLAIN, {"cohort": 2}, id="knn-per", marks=pytest.mark.slow),
    pytest.param("fedem", DELTA, {"cohort": 2}, id="fedem", marks=pytest.mark.slow),
    pytest.param("ifca", PLAIN, {"cohort": 2}, id="ifca", marks=pytest.mark.slow),
    pytest.param("graph-proj", PLAIN, {}, id="graph-proj", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "channel", "training"), STARS)
def test_deployed_equals_simulated(
    name: str, channel: Channel, training: dict[str, Any], fed: Federation, tmp_path: Path
) -> None:
    """Models and bill, with every participant restarted from its folder after every round."""

    def restart(room: Room) -> None:
        room.hub = room.new_hub()
        room.clients = [room.new_client(k) for k in range(CLIENTS)]

    plan = make_plan(fed, name, channel, **training)
    assert_same(Room(plan, fed, tmp_path).run(restart), fed)


@pytest.mark.parametrize("channel", [PLAIN, pytest.param(DELTA, marks=pytest.mark.slow)])
def test_an_implicit_step_is_deployed(channel: Channel, fed: Federation, tmp_path: Path) -> None:
    plan = make_plan(fed, "fedu", channel, {"implicit": True, "eta": 4.0})
    assert_same(Room(plan, fed, tmp_path).run(), fed)


def test_a_hadamard_projection_is_drawn_by_everybody_alike(fed: Federation, tmp_path: Path) -> None:
    plan = make_plan(fed, "lp-proj-2", options={"projection": "srht", "dsub": 9}, cohort=2)
    assert_same(Room(plan, fed, tmp_path).run(), fed)


@pytest.mark.parametrize("channel", [PLAIN, pytest.param(DELTA, marks=pytest.mark.slow)])
def test_neighbours_that_were_not_sampled_count_as_in_the_simulator(
    channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    """With their last models, after the pull that they got."""
    plan = make_plan(fed, "fedu", channel, {"neighbours": "all", "eta": 0.2}, cohort=2, rounds=8)
    assert_same(Room(plan, fed, tmp_path).run(), fed, rtol=1e-6)


@pytest.mark.slow
def test_double_precision(fed: Federation, tmp_path: Path) -> None:
    assert_same(
        Room(make_plan(fed, "ditto", precision="float64"), fed, tmp_path).run(), fed, rtol=1e-10
    )


@pytest.mark.parametrize(
    ("name", "channel"),
    [("fedu", PLAIN), ("fedu", DELTA), ("fedavg", DELTA)],
    ids=["plain", "graph over delta", "star over delta"],
)
def test_requests_may_be_repeated_after_any_crash(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    """The hub dies in the middle of a round, clients answer twice, a client dies after its answer:
    nothing is done twice.
    """
    room = Room(make_plan(fed, name, channel), fed, tmp_path)
    room.round()
    first = {k: room.ask(k, request) for k, request in room.hub.requests().items() if k < 2}
    room.hub.take(0, first[0])
    room.hub = room.new_hub()
    room.clients[1] = room.new_client(1)
    again = room.hub.requests()
    assert len(again) == CLIENTS
    for k in (0, 1):
        assert room.ask(k, again[k]) == first[k]
    room.on_wire = {"up": room.hub.ledger.up, "down": 0}  # what was said again is not billed again
    room.run()
    room.on_wire = {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
    assert_same(room, fed)


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        pytest.param("fedavg", COPIES, id="star, copies"),
        pytest.param("fedavg", DELTA, id="star", marks=pytest.mark.slow),
        pytest.param("fedu", DELTA, id="graph"),
    ],
)
def test_a_lost_answer_puts_links_in_step_again(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    """A client works, its answer is lost, and the hub goes on without it: both ends of its link
    agree again after the next round.
    """
    room = Room(make_plan(fed, name, channel, rounds=4), fed, tmp_path)
    room.round()
    requests = room.hub.requests()
    room.ask(2, requests[2])  # lost
    for k in (0, 1, 3):
        room.hub.take(k, room.ask(k, requests[k]))
    assert room.hub.enough
    room.hub.close()
    room.round()
    mine, theirs = room.clients[2].kept.state.up.public, room.hub.clients[2].up
    if channel is COPIES:
        assert np.asarray(mine.copy).tobytes() == np.asarray(theirs.copy).tobytes()
    room.round()
    room.run()


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        pytest.param("fedavg", COPIES, id="star, copies", marks=pytest.mark.slow),
        pytest.param("fedavg", DELTA, id="star"),
        pytest.param("fedu", DELTA, id="graph"),
    ],
)
def test_a_client_that_lost_its_folder_begins_anew(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    room = Room(make_plan(fed, name, channel), fed, tmp_path)
    room.round()
    room.round()
    (tmp_path / "client1" / "client.safetensors").unlink()
    room.clients[1] = room.new_client(1, newcomer=True)
    room.run()
    assert all(
        np.isfinite(client.models()[client.method.model_views[0]].flat()).all()
        for client in room.clients
    )


def agree(mine: Any, theirs: Any) -> None:
    """To the last bit."""
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        pytest.param("fedu", DELTA.replace(down=True), id="graph, delta"),
        pytest.param(
            "fedu",
            get_channel("qsgd", {"levels": 127, "down": True}),
            id="graph, qsgd",
            marks=pytest.mark.slow,
        ),
        pytest.param("fedavg", COPIES.replace(down=True), id="star, delta"),
    ],
)
def test_both_ends_of_a_link_agree_to_the_last_bit(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    """Hub and client work out apart what the other one knows."""
    room = Room(make_plan(fed, name, channel), fed, tmp_path).run()
    for client, theirs in zip(room.clients, room.hub.clients, strict=True):
        mine = client.kept.state
        assert np.asarray(mine.up.public.copy).any()
        agree(mine.up.public, theirs.up)
        if name == "fedu":
            agree(mine.down.public, theirs.down.public)
        else:
            assert isinstance(room.hub.round, StarRound)
            said = room.hub.round.spoken(room.hub.kept)
            assert said is not None
            agree(client.kept.broadcast_copy, said.sent.link.public)


def test_nonsense_is_rejected_counted_and_changes_nothing(fed: Federation, tmp_path: Path) -> None:
    room = Room(make_plan(fed, "fedavg"), fed, tmp_path)
    good = {k: room.ask(k, request) for k, request in room.hub.requests().items()}
    frame = good[1].frames[0]
    nan = np.frombuffer(frame, "<f4").copy()
    nan[3] = np.nan
    bad = {
        "NaN": dataclasses.replace(good[1], frames=(nan.tobytes(),)),
        "must have at most": dataclasses.replace(good[1], frames=(frame * 100,)),
        "are expected": dataclasses.replace(good[1], frames=(frame[:-4],)),
        "round 7": dataclasses.replace(good[1], round=7),
        "another plan": dataclasses.replace(good[1], plan="0" * 32),
        "parts": dataclasses.replace(good[1], frames=(frame, frame)),
        "samples": dataclasses.replace(good[1], samples=-3),
    }
    for i, (sentence, reply) in enumerate(bad.items()):
        with pytest.raises(Rejected, match=sentence):
            room.hub.take(1, reply)
        assert room.hub.clients[1].rejected == i + 1
    for k, reply in good.items():
        assert room.hub.take(k, reply)
    with pytest.raises(Rejected, match="second message"):
        room.hub.take(1, good[1])
    room.hub.close()
    room.run()
    assert_same(room, fed)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"plan": 3}',
        '{"plan": "x", "round": 1e400, "samples": 1, "gradients": 0, "lost": false, "scores": {}}',
        "x" * 70000,
    ],
)
def test_garbage_envelopes_are_rejected(text: str) -> None:
    with pytest.raises(Rejected):
        messages.opened(Reply, text, ())


def test_a_full_disk_loses_nothing(
    fed: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(make_plan(fed, "fedavg"), fed, tmp_path)
    room.round()
    request = room.hub.requests()[0]
    before = (tmp_path / "client0" / "client.safetensors").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("coterie.deploy.kept.save_file", full)
        with pytest.raises(InvalidInput, match="No space left"):
            room.clients[0].answer(request)
    assert (tmp_path / "client0" / "client.safetensors").read_bytes() == before
    for k, asked in room.hub.requests().items():
        room.hub.take(k, room.ask(k, asked))
    with monkeypatch.context() as patch:
        patch.setattr("coterie.deploy.kept.save_file", full)
        with pytest.raises(InvalidInput, match="No space left"):
            room.hub.close()
    assert room.hub.t == 1
    room.hub.close()
    assert_same(room.run(), fed)


def test_old_requests_and_other_plans_are_refused(fed: Federation, tmp_path: Path) -> None:
    room = Room(make_plan(fed, "fedavg"), fed, tmp_path)
    request = room.hub.requests()[0]
    room.round()
    room.round()
    with pytest.raises(Rejected, match="done round 1 already"):
        room.clients[0].answer(request)
    with pytest.raises(Rejected, match="another plan"):
        room.clients[0].answer(dataclasses.replace(request, plan="f" * 32))
    with pytest.raises(InvalidInput, match=r"plan was changed.*training.seed"):
        Hub(room.plan.with_(training=room.plan.training.replace(seed=9)), tmp_path / "hub")
    with pytest.raises(InvalidInput, match="another plan or client"):
        Client(room.plan, 1, fed.subset(np.array([1])), tmp_path / "client0")


@pytest.mark.parametrize(
    "name",
    [
        "pfedme",
        pytest.param("ditto", marks=pytest.mark.slow),
        pytest.param("lp-proj-1", marks=pytest.mark.slow),
    ],
)
def test_a_hub_never_sees_personal_models(name: str, tmp_path: Path) -> None:
    """The numbers of a personal model are not in what leaves its client, nor in what the hub
    keeps.
    """
    rng = np.random.default_rng(0)  # all inputs vary, so that all of a personal model is learnt
    fed = from_arrays(
        "noise",
        rng.normal(size=(80, 12)).astype(np.float32),
        rng.integers(0, 10, 80),
        np.arange(80) % CLIENTS,
        classes=10,
    )
    room = Room(make_plan(fed, name), fed, tmp_path)
    sent = []
    initial, ask = room.clients[0].models()["personal"].flat(), room.ask

    def listening(k: int, request: Request) -> Reply:
        before = room.clients[k].models()["personal"].flat()
        reply = ask(k, request)
        after = room.clients[k].models()["personal"].flat()
        learnt = np.concatenate([before, after])
        learnt = learnt[
            ~np.isin(learnt, initial)
        ]  # what it has from its data, and not from the common start
        sent.append((learnt, np.frombuffer(b"".join(reply.frames), "<f4")))
        return reply

    room.ask = listening  # type: ignore[method-assign]
    room.run()
    for learnt, said in sent:
        assert len(learnt) > 50
        assert np.isin(learnt, said).mean() < 0.01  # two numbers may meet by chance
    personal = room.clients[0].models()["personal"].flat()
    assert (
        np.ascontiguousarray(personal).tobytes()[:64]
        not in (tmp_path / "hub" / "hub.safetensors").read_bytes()
    )
    assert_same(room, fed)
