"""Folders that are lost, or older than what the other side has seen: of a client, and of a hub."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from coterie import Federation, load
from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.deploy import set_back
from coterie.deploy.client import FILE
from coterie.deploy.hub import FILE as HUB_FILE
from coterie.deploy.hub import Hub
from coterie.deploy.messages import Ahead, Forgot
from coterie.deploy.plan import Rules
from tests.support.room import CLIENTS, Room, assert_same, make_plan

COPIES = get_channel("delta", {"share": 0.1, "memory": "copies"})
KEPT = [
    pytest.param("fedu", PLAIN, id="graph", marks=pytest.mark.slow),
    pytest.param("fedu", COPIES, id="graph, copies"),
    pytest.param("fedavg", COPIES, id="star, copies", marks=pytest.mark.slow),
    pytest.param("pfedme", PLAIN, id="star"),
]


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


def at_round(room: Room, t: int) -> Room:
    while room.hub.t < t:
        room.round()
    return room


@pytest.mark.parametrize(("name", "channel"), KEPT)
def test_a_client_whose_folder_is_lost_or_set_back_stops(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    """And goes on, with the exact result, when the folder is back."""
    room = at_round(Room(make_plan(fed, name, channel, rounds=4), fed, tmp_path), 1)
    file, old, new = tmp_path / "client1" / FILE, tmp_path / "old", tmp_path / "new"
    shutil.copy(file, old)
    at_round(room, 3)
    shutil.move(file, new)
    request = room.hub.requests()[1]
    for put_back, words in ((None, "knows of none"), (old, "knows of round 0")):
        if put_back is not None:
            shutil.copy(put_back, file)
        with pytest.raises(Forgot, match=f"had round 2 of this client.*{words}.*--newcomer"):
            room.new_client(1).answer(request)
    shutil.copy(new, file)
    room.clients[1] = room.new_client(1)
    assert_same(room.run(), fed)


def test_a_client_that_trained_and_did_not_send_is_missed_as_well(
    fed: Federation, tmp_path: Path
) -> None:
    """In pFedMe all train and some send."""
    room = at_round(Room(make_plan(fed, "pfedme", cohort=1, rounds=4), fed, tmp_path), 2)
    quiet = [k for k in range(CLIENTS) if room.hub.clients[k].seen < 0]
    assert quiet, "choose another seed: some must not have sent yet"
    (tmp_path / f"client{quiet[0]}" / FILE).unlink()
    with pytest.raises(Forgot, match="had round 1 of this client"):
        room.new_client(quiet[0]).answer(room.hub.requests()[quiet[0]])


def test_a_damaged_state_is_refused_with_what_heals_it(fed: Federation, tmp_path: Path) -> None:
    """And that does heal it."""
    room = at_round(Room(make_plan(fed, "pfedme", rounds=4), fed, tmp_path), 1)
    room.hub_folder = shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    at_round(room, 3)
    states = tmp_path / "hub" / HUB_FILE, tmp_path / "client1" / FILE
    for path in states:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match=r"damaged; put back the newest copy .*hub go-back"):
        Hub(room.plan, tmp_path / "hub")
    with pytest.raises(InvalidInput, match=r"damaged; put back a copy .*delete.*--newcomer"):
        room.new_client(1)
    states[1].unlink()
    room.clients[1] = room.new_client(1, newcomer=True)
    room.hub = room.new_hub()
    with pytest.raises(Ahead):
        room.round()
    room.hub.set_back()
    room.run()
    assert room.hub.finished


def test_who_keeps_nothing_cannot_lose_it(fed: Federation, tmp_path: Path) -> None:
    room = at_round(Room(make_plan(fed, "fedavg"), fed, tmp_path), 2)
    (tmp_path / "client1" / FILE).unlink()
    room.clients[1] = room.new_client(1)
    assert_same(room.run(), fed)


@pytest.mark.parametrize("told", [True, False], ids=["told so", "go-on"])
def test_a_newcomer_goes_on_if_it_may(told: bool, fed: Federation, tmp_path: Path) -> None:
    plan = make_plan(fed, "fedu", COPIES, rounds=4)
    if not told:
        plan = plan.with_(rules=Rules(on_missing="go-on", at_least=0.5))
    room = at_round(Room(plan, fed, tmp_path), 2)
    (tmp_path / "client1" / FILE).unlink()
    room.clients[1] = room.new_client(1, newcomer=told)
    request = room.hub.requests()[1]
    reply = room.ask(1, request)
    assert reply.lost
    assert reply.newcomer
    assert not room.hub.take(1, reply)
    room.clients[1] = room.new_client(1)  # once is enough
    room.run()
    assert np.isfinite(room.clients[1].models()["personal"].flat()).all()
    assert room.hub.clients[1].worked == 3


@pytest.mark.parametrize(("name", "channel"), KEPT)
def test_a_hub_that_was_put_back_goes_on_when_its_operator_says_so(
    name: str, channel: Channel, fed: Federation, tmp_path: Path
) -> None:
    plan = make_plan(fed, name, channel, rounds=6)
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    room, hubs, copy = Room(plan, fed, tmp_path), tmp_path / "hubs", tmp_path / "copy"
    room.hub_folder = hubs / plan.name
    room.hub = room.new_hub()
    at_round(room, 2)
    shutil.copytree(hubs, copy)
    at_round(room, 5)
    shutil.rmtree(hubs)
    shutil.copytree(copy, hubs)
    room.hub = room.new_hub()
    old = room.hub.requests()[0]
    with pytest.raises(Ahead, match="asks for round 2, but this client has done round 4"):
        room.clients[0].answer(old)
    said: list[str] = []
    set_back.go_back(tmp_path / "plan.toml", hubs, say=said.append)
    assert said == [
        "test: the run goes on from round 2; clients that were ahead keep their models. Start it"
        " again with `coterie hub run`."
    ]
    before = [client.models() for client in room.clients]
    room.hub = room.new_hub()
    reply = room.ask(0, room.hub.requests()[0])
    assert reply.lost
    for view, model in room.clients[0].models().items():
        np.testing.assert_array_equal(model.flat(), before[0][view].flat())
    room.round()
    file = tmp_path / "client1" / FILE
    file.rename(tmp_path / "away")
    with pytest.raises(Forgot, match="had round 2 of this client"):  # also after it was set back
        room.new_client(1).answer(room.hub.requests()[1])
    (tmp_path / "away").rename(file)
    room.run()
    assert room.hub.finished
    assert all(client.kept.finished for client in room.clients)
    with pytest.raises(Ahead):  # of the hub that was put back and did not say so
        room.clients[0].answer(old)


def test_there_must_be_something_to_go_back_to(fed: Federation, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(make_plan(fed, "fedu").to_toml())
    with pytest.raises(InvalidInput, match="holds no run of the plan 'test'"):
        set_back.go_back(tmp_path / "plan.toml", tmp_path / "hub", say=print)
