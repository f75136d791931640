"""A hub over Flower's grid without Flower's processes: nonsense, silence, refusals."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie import Federation
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.keys import authority as keys
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from tests.support.flower_lab import NAMES, make_plan

pytest.importorskip("flwr")
conductor, flower, members = (
    importlib.import_module(f"coterie.deploy.flower.{name}")
    for name in ("conductor", "supervise", "members")
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
        identity = importlib.import_module(
            "flwr.supercore.task_identity"
        ).TaskIdentity  # else Flower makes no messages
        identity.run_id = identity.node_id = identity.task_id = 1
        self.spoil, self.waiting = spoil, dict[str, Any]()
        self.away: set[int] = set()
        keys.init(folder / "keys", "lab")
        (folder / "plan.toml").write_text(plan.to_toml())
        for k, name in enumerate(NAMES):
            keys.issue(folder / "keys", name)
            (folder / name).mkdir()
            save_own(fed, k, folder / name / "data.npz")
            (folder / name / "site.toml").write_text(
                f'plan = "../plan.toml"\nname = "{name}"\nfolder = "state"\n[data]\npath ='
                ' "data.npz"\n'
            )
        self.desks = [
            flower.Desk([folder / name / "site.toml"], lambda sentence: None) for name in NAMES
        ]
        known = keys.flower_keys(folder / "keys")
        self.public = [members.pem(known[name]) for name in NAMES]
        self.said: list[str] = []
        self.hub = Hub(plan, folder / "hub", say=self.said.append)
        known_members = members.Members(plan, folder / "keys", self.said.append)
        grid: Any = self
        self.conductor = conductor.Conductor(
            grid, self.hub, known_members, self.said.append, lambda *_: None
        )

    def get_nodes(self) -> list[Any]:
        """Numbers and names are lies; only the key counts."""
        there = [k for k in range(len(NAMES)) if k not in self.away]
        return [
            SimpleNamespace(
                node_id=100 - k, name="ward-a", public_key=self.public[k], last_activated_at=""
            )
            for k in there
        ]

    def push_messages(self, messages: list[Any]) -> list[str]:
        idents = []
        for message in messages:
            idents.append(f"message{len(self.waiting)}-{time.monotonic()}")
            message.metadata.__dict__["_message_id"] = idents[-1]
            k = 100 - message.metadata.dst_node_id
            answer = self.spoil(k, self.desks[k].answer(message.content))
            self.waiting[idents[-1]] = (
                None if answer is None else flower.Message(answer, reply_to=message)
            )
        return idents

    def pull_messages(self, idents: list[str]) -> list[Any]:
        found = [self.waiting.pop(i) for i in idents if self.waiting.get(i) is not None]
        return found


def test_who_is_who_what_is_nonsense_and_what_is_said(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "AGAIN", 0.0)
    monkeypatch.setattr(conductor, "POLL", 0.0)
    plan = make_plan(fed, "fedu", rounds=2)
    record = flower.ConfigRecord
    bad = [
        flower.RecordDict({"other": record({"envelope": "{}"})}),
        flower.RecordDict({"coterie": record({"envelope": "\x00{", "frames": [b"?"]})}),
        flower.RecordDict({"coterie": record({"envelope": "{}", "more": 1})}),
        flower.RecordDict({"coterie": record({"error": "the disk is\x1b[2J full"})}),
    ]
    room = Room(tmp_path, fed, plan, lambda k, answer: bad.pop() if bad and k == 1 else answer)
    room.conductor.run()
    assert room.hub.finished
    assert [client.rejected for client in room.hub.clients] == [0, 3, 0]
    said = "\n".join(room.said)
    assert "ward-b cannot answer: the disk is [2J full" in said
    assert said.count("rejected a message of ward-b") == 3
    simulator = Simulator(
        plan.method, fed, plan.model, plan.training, plan.coupling, channel=plan.channel
    )
    list(drive(simulator))
    for k, name in enumerate(NAMES):
        mine = (
            Client(plan, k, fed.subset(np.array([k])), tmp_path / name / "state")
            .models()["personal"]
            .flat()
        )
        np.testing.assert_allclose(
            mine, simulator.models(k)["personal"].flat(), rtol=1e-5, atol=1e-6
        )


def test_the_silent_the_revoked_and_the_last_resort(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "POLL", 0.0)
    monkeypatch.setattr(conductor, "LOOK", 0.0)
    plan = make_plan(fed, "pfedme", rounds=4, rules=Rules(patience=0.5, give_up=1.5))
    room = Room(tmp_path, fed, plan)
    room.away = {2}
    with pytest.raises(
        conductor.GaveUp, match=r"round 0: no usable answer from ward-c \(not connected\) in"
    ):
        room.conductor.run()
    keys.revoke(tmp_path / "keys", "ward-c")
    room.away = set()
    room.conductor.run()
    assert room.hub.finished
    assert any("ward-c is revoked" in sentence for sentence in room.said)
    assert not np.any(room.hub.ledger.rows()[:, 1] == 2)


def test_a_round_is_closed_without_the_silent_where_the_plan_says_so(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "POLL", 0.0)
    plan = make_plan(
        fed, "ditto", rounds=2, rules=Rules(on_missing="go-on", patience=0.5, at_least=0.6)
    )
    room = Room(tmp_path, fed, plan, lambda k, answer: None if k == 0 else answer)
    room.conductor.run()
    assert room.hub.finished
    assert sum("without ward-a" in sentence for sentence in room.said) == 2


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        (
            "'/home/ward/state/client.safetensors' cannot be read",
            "'…/client.safetensors' cannot be read",
        ),
        ("lower lr/2 and a/b", "lower lr/2 and a/b"),
    ],
)
def test_a_refusal_does_not_tell_where_things_lie(sentence: str, shown: str) -> None:
    assert flower._without_paths(sentence) == shown
