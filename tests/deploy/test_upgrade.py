"""One version back: what the former version left on disk is taken up."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from safetensors import safe_open

from coterie.deploy import kept as disk
from coterie.deploy.hub import FILE
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
