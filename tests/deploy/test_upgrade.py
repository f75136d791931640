"""One version back: what it left on disk is taken up, and what it says is understood."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from coterie.deploy import compact, messages
from coterie.deploy import kept as disk
from coterie.deploy.client import Client
from coterie.deploy.hub import FILE
from coterie.deploy.messages import Refusal, Rejected, Reply, Request
from coterie.deploy.zenoh import star
from coterie.deploy.zenoh.net import Asked, packed, unpacked
from tests.support import former
from tests.support.room import CLIENTS, Room, assert_same

KEPT = Path(__file__).parent / "former"


def format_of(path: Path) -> str:
    with safe_open(path, "np") as f:
        return str((f.metadata() or {})["format"])


def test_a_run_of_the_former_version_goes_on_and_ends_as_the_simulator_does(tmp_path: Path) -> None:
    shutil.copytree(KEPT, tmp_path / "run")
    states = [tmp_path / "run" / "hub" / FILE] + [
        tmp_path / "run" / f"client{k}" / "client.safetensors" for k in range(CLIENTS)
    ]
    assert {format_of(path) for path in states} == {str(disk.FORMAT - 1)}
    fed = former.federation()
    room = Room(former.plan(fed), fed, tmp_path / "run")
    hub = room.hub
    assert hub.t == former.DONE
    before = {c["name"]: (c["up"], c["down"], c["rounds"]) for c in hub.status()["clients"]}
    rows = hub.ledger.rows()
    for k, name in enumerate(before):
        mine = rows[rows[:, 1] == k]
        assert before[name] == (*mine[:, 2:4].sum(0), former.DONE)
    room.on_wire = {"up": hub.ledger.up, "down": hub.ledger.down}
    for _ in range(hub.plan.exchanges - former.DONE):
        room.round()
    # The pull of the last round went down with a request of the former version's.
    billed = room.hub.ledger.rows()
    assert room.on_wire["up"] == room.hub.ledger.up == int(billed[:, 2].sum())
    for k, request in hub.farewells().items():
        assert hub.take(k, room.ask(k, request))
    hub.end()
    room.on_wire["down"] = hub.ledger.down
    assert_same(room, fed)
    assert {format_of(path) for path in states} == {str(disk.FORMAT)}
    np.testing.assert_array_equal(Room(room.plan, fed, room.folder).hub.ledger.rows(), billed)


def asked_in_version_2(client: Client, request: Request) -> Reply:
    """Over Zenoh, by a hub of the former version, which understands its own only."""
    old = dataclasses.replace(request, wire=2)
    got: list[bytes] = []
    payload = packed(messages.envelope(old), old.frames)
    star.answer(client, Asked("hub", payload, got.append), pytest.fail)  # type: ignore[arg-type]
    text, frames = unpacked(got[0], 1)
    assert json.loads(text)["wire"] == 2
    reply: Reply = messages.opened(Reply, text, frames)
    return reply


def test_a_client_answers_a_hub_of_the_former_version_in_its_words(tmp_path: Path) -> None:
    """Clients are upgraded first: each is asked in version 2 until its hub is upgraded too."""
    fed = former.federation()
    room = Room(former.plan(fed), fed, tmp_path)
    for t in range(room.plan.exchanges):
        for k, request in room.hub.requests().items():
            reply = asked_in_version_2(room.clients[k], request)
            if t == 1:  # asked again, by a hub that was upgraded in between
                room.clients[k] = room.new_client(k)
                again = compact.decoded(Request, compact.coded(request))
                assert room.clients[k].answer(again) == dataclasses.replace(reply, wire=3)
            assert room.hub.take(k, reply)
        room.hub.close()
    for k, request in room.hub.farewells().items():
        assert room.hub.take(k, room.ask(k, request))
    room.hub.end()
    room.on_wire = {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
    assert_same(room, fed)


def test_a_hub_says_so_when_a_client_is_older() -> None:
    """Such a client finds no JSON in what it is asked, and says that in its own words."""
    asked = compact.coded(Request("0" * 32, "work", 3))
    with pytest.raises(Rejected, match="parts, but must have at most"):
        unpacked(asked, star.FRAMES)
    with pytest.raises(
        Refusal, match=r"version 2 of the protocol, and this hub asks in 3: upgrade"
    ):
        star.opened(Reply, packed(messages.refusal(Rejected("no.")), ()), 1)


@pytest.mark.parametrize("wire", [0, 1, messages.WIRE + 1, "2", None, 10**30, True])
def test_other_versions_are_refused_in_a_sentence(wire: Any) -> None:
    values = json.loads(messages.envelope(Reply("plan", 0, 1)))
    with pytest.raises(Rejected, match="of the protocol, and this one understands 2 and 3"):
        messages.opened(Reply, json.dumps(values | {"wire": wire}), ())
