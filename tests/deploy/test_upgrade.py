"""One version back: what it left on disk is taken up, and what it says is understood."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from coterie.deploy import kept as disk
from coterie.deploy import messages
from coterie.deploy.hub import FILE
from coterie.deploy.messages import Rejected, Reply, Request
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


def as_version_1(text: str) -> str:
    """As the former version wrote envelopes."""
    values = json.loads(text)
    assert values["wire"] == messages.WIRE == 2
    old = {key: value for key, value in values.items() if messages.SINCE.get(key, 1) == 1}
    return json.dumps(old, sort_keys=True)


def test_a_client_answers_a_hub_of_the_former_version_in_its_words(tmp_path: Path) -> None:
    """Clients are upgraded first: each is asked in version 1 until its hub is upgraded too."""
    fed = former.federation()
    room = Room(former.plan(fed), fed, tmp_path)
    for t in range(room.plan.exchanges):
        for k, request in room.hub.requests().items():
            text = as_version_1(messages.envelope(request))
            asked = messages.opened(Request, text, request.frames)
            assert messages.envelope(asked) == text
            reply = room.clients[k].answer(asked)
            if t == 1:  # asked again, also by a hub that was upgraded in between
                room.clients[k] = room.new_client(k)
                assert room.clients[k].answer(asked) == reply
            assert "wire" not in json.loads(messages.envelope(reply))
            taken = messages.opened(Reply, messages.envelope(reply), reply.frames)
            assert room.hub.take(k, taken)
        room.hub.close()
    for k, request in room.hub.farewells().items():
        assert room.hub.take(k, room.ask(k, request))
    room.hub.end()
    room.on_wire = {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
    assert_same(room, fed)


@pytest.mark.parametrize("wire", [0, messages.WIRE + 1, "2", None, 10**30, True])
def test_other_versions_are_refused_in_a_sentence(wire: Any) -> None:
    values = json.loads(messages.envelope(Reply("plan", 0, 1)))
    with pytest.raises(Rejected, match="of the protocol, and this one understands 1 and 2"):
        messages.opened(Reply, json.dumps(values | {"wire": wire}), ())
