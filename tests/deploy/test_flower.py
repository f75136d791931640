"""The Flower app's two ends without Flower's processes: nonsense, silence, refusals."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie import Federation
from coterie.core.errors import InvalidInput
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.identity import Revocations
from coterie.deploy.log import GaveUp
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from tests.support.hub_lab import NAMES, make_plan

pytest.importorskip("flwr")
app, conductor, library, records = (
    importlib.import_module(f"coterie.deploy.flower.{name}")
    for name in ("app", "conductor", "library", "records")
)


class Room:
    """Flower's grid without Flower: nodes in this process, which answer when they are asked;
    `spoil` stands between them and the hub.
    """

    def __init__(
        self,
        folder: Path,
        fed: Federation,
        plan: Plan,
        spoil: Callable[[int, Any], Any] = lambda k, answer: answer,
    ) -> None:
        self.spoil, self.waiting, self.away = spoil, list[Any](), set[int]()
        (folder / "plan.toml").write_text(plan.to_toml())
        self.sites = [folder / name / "site.toml" for name in NAMES]
        for k, name in enumerate(NAMES):
            (folder / name).mkdir()
            save_own(fed, k, folder / name / "data.npz")
            self.sites[k].write_text(
                f'plan = "../plan.toml"\nname = "{name}"\nfolder = "state"\n[data]\npath ='
                ' "data.npz"\n'
            )
        self.said: list[str] = []
        self.hub = Hub(plan, folder / "hub", say=self.said.append)
        self.conductor = conductor.Conductor(self, self.hub, self.said.append)

    def get_nodes(self) -> list[Any]:
        """Numbers mean nothing, and a node of another name is nobody's."""
        there = [k for k in range(len(NAMES)) if k not in self.away]
        nodes = [(100 - k, NAMES[k]) for k in there]
        return [
            SimpleNamespace(node_id=node, name=name, last_activated_at="")
            for node, name in [*nodes, (7, ""), (8, "stranger")]
        ]

    def push_messages(self, messages: list[Any]) -> list[str]:
        idents = []
        for message in messages:
            k = 100 - message.to
            answer = self.spoil(k, app.answer([self.sites[k]], message.content, lambda _: None))
            idents.append(f"message-{len(self.waiting)}")
            self.waiting.append(answer)
        return idents

    def pull_messages(self, idents: list[str]) -> list[Any]:
        found = [(i, self.waiting[int(i.partition("-")[2])]) for i in idents]
        return [
            SimpleNamespace(
                content=answer,
                metadata=SimpleNamespace(reply_to_message_id=i),
                has_error=lambda: False,
            )
            for i, answer in found
            if answer is not None
        ]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, unsynced: None) -> None:
    """Outside of a run Flower makes no messages."""

    def message(content: Any, to: int, kind: str, *, ttl: float, group_id: str) -> Any:
        return SimpleNamespace(content=content, to=to)

    monkeypatch.setattr(conductor, "Message", message)
    for name in ("AGAIN", "POLL", "LOOK"):
        monkeypatch.setattr(conductor, name, 0.0)


def test_what_is_nonsense_and_what_is_said(tmp_path: Path, fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    record, table = library.ConfigRecord, library.RecordDict
    full = InvalidInput("'/home/ward/state/client.safetensors' cannot be written:\x1b[2J No space")
    bad = [
        table({"other": record({"envelope": "{}"})}),
        table({"coterie": record({"envelope": "\x00{", "frames": [b"?"]})}),
        table({"coterie": record({"envelope": "{}", "more": 1})}),
        records.refused(full),
    ]
    room = Room(tmp_path, fed, plan, lambda k, answer: bad.pop() if bad and k == 1 else answer)
    room.conductor.run()
    assert room.hub.finished
    assert [client.rejected for client in room.hub.clients] == [0, 3, 0]
    said = "\n".join(room.said)
    assert "ward-b cannot answer: '…/client.safetensors' cannot be written: [2J No space" in said
    assert said.count("rejected a message of ward-b") == 3
    simulator = Simulator(plan.method, fed, plan.model, plan.training, plan.coupling)
    list(drive(simulator))
    for k, name in enumerate(NAMES):
        client = Client(plan, k, fed.subset(np.array([k])), tmp_path / name / "state")
        mine = client.models()["personal"].flat()
        np.testing.assert_array_equal(mine, simulator.models(k)["personal"].flat())


def test_who_is_revoked_is_not_asked_and_not_waited_for(tmp_path: Path, fed: Federation) -> None:
    """By a list that is read again while the run goes on."""
    keys.init(tmp_path / "keys", "lab")
    keys.issue(tmp_path / "keys", "ward-c")
    plan = make_plan(fed, "fedu", rounds=3, rules=Rules(patience=5.0, give_up=20.0))

    def spoil(k: int, answer: Any) -> Any:
        if room.hub.t == 1 and "ward-c" not in room.conductor.revoked():
            keys.revoke(tmp_path / "keys", "ward-c")
        return answer

    room = Room(tmp_path, fed, plan, spoil)
    listed = Revocations(tmp_path / "keys" / "ca.pem", tmp_path / "keys" / "crl.pem")
    room.conductor.revoked = listed.revoked_names
    room.conductor.run()
    assert "round 2: ward-c is revoked: it is not asked and does not count." in room.said
    rows = room.hub.ledger.rows()
    assert set(rows[rows[:, 0] == 2][:, 1]) == {0, 1}
    assert set(rows[rows[:, 0] == 0][:, 1]) == {0, 1, 2}


def test_the_silent(tmp_path: Path, fed: Federation) -> None:
    """With "wait" the run stops, and goes on when all are there; with "go-on" it does without."""
    plan = make_plan(fed, "fedu", rounds=2, rules=Rules(patience=0.5, give_up=1.0))
    (tmp_path / "wait").mkdir()
    room = Room(tmp_path / "wait", fed, plan)
    room.away = {2}
    words = r"round 0: no usable answer from ward-c \(not connected\) in"
    with pytest.raises(GaveUp, match=words):
        room.conductor.run()
    room.away = set()
    room.conductor.run()
    assert room.hub.finished
    go_on = Rules(on_missing="go-on", patience=0.5, at_least=0.6)
    (tmp_path / "go-on").mkdir()
    room = Room(
        tmp_path / "go-on",
        fed,
        make_plan(fed, "fedu", rounds=2, rules=go_on),
        lambda k, answer: None if k == 0 else answer,
    )
    room.conductor.run()
    assert room.hub.finished
    assert sum("without ward-a" in sentence for sentence in room.said) == 2


def test_what_a_site_must_have(tmp_path: Path, fed: Federation) -> None:
    room = Room(tmp_path, fed, make_plan(fed, "fedu", rounds=2))
    other = make_plan(fed, "fedu", rounds=3)
    request = Hub(other, tmp_path / "other").requests()[0]
    said: list[str] = []
    app.answer([room.sites[0]], records.packed(request), said.append)
    assert "the other side has another plan" in said[0]
    with pytest.raises(InvalidInput, match="the node config has no sites"):
        app.sites_of("")
