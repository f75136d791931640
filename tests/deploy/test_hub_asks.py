"""What a hub asks, takes and says, without a network: nonsense, silence, refusals, revocations."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from coterie import Federation
from coterie.cli.deploy import status_table
from coterie.cli.peer import peer
from coterie.core.errors import InvalidInput
from coterie.deploy import compact
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.hub import hub_identity
from coterie.deploy.log import GaveUp
from coterie.deploy.messages import Ahead, refusal
from coterie.deploy.plan import Rules
from coterie.deploy.site import save_own
from coterie.deploy.statuses import read_statuses
from coterie.deploy.zenoh import star
from coterie.deploy.zenoh.gate import read_hub
from coterie.deploy.zenoh.join import join
from coterie.deploy.zenoh.net import packed
from coterie.engine.simulate import Simulator, drive
from tests.support.asking_room import AskingRoom
from tests.support.hub_lab import NAMES, make_plan


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, unsynced: None) -> None:
    monkeypatch.setattr(star, "ASK_AGAIN", (0.0, 0.0))


def test_what_is_nonsense_and_what_is_said(tmp_path: Path, fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    full = InvalidInput("'/home/ward/state/client.safetensors' cannot be written:\x1b[2J No space")
    bad = [
        b"garbage",
        packed("\x00{", [b"?"]),
        packed("{}", [b"?", b"?"]),
        packed('{"envelope": 1}', ()),
        compact.refusal(full),
    ]
    room = AskingRoom(
        tmp_path, fed, plan, lambda k, sent: bad.pop() if bad and k == "ward-b" else sent
    )
    room.disputed = {"ward-c"}
    room.run()
    assert room.hub.finished
    assert sorted(room.over) == sorted(NAMES)
    assert [client.rejected for client in room.hub.clients] == [0, 4, 1]
    said = "\n".join(room.said)
    assert "ward-b cannot answer: '…/client.safetensors' cannot be written: [2J No space" in said
    assert said.count("rejected a message of ward-b") == 4
    assert "two processes answer under this name" in said
    simulator = Simulator(plan.method, fed, plan.model, plan.training, plan.coupling)
    list(drive(simulator))
    for k, name in enumerate(NAMES):
        mine = room.clients[name].models()["personal"].flat()
        np.testing.assert_array_equal(mine, simulator.models(k)["personal"].flat())


def test_the_silent_the_revoked_and_the_last_resort(tmp_path: Path, fed: Federation) -> None:
    plan = make_plan(fed, "pfedme", rounds=4, rules=Rules(patience=0.2, give_up=0.5))
    room = AskingRoom(tmp_path, fed, plan)
    room.away = {"ward-c"}
    with pytest.raises(
        GaveUp, match=r"round 0: no usable answer from ward-c \(not connected\) for 0.5 s"
    ):
        room.run()
    room.revoked = {"ward-c"}
    room.away = set()
    room.run()
    assert room.hub.finished
    assert any("ward-c is revoked" in sentence for sentence in room.said)
    assert not np.any(room.hub.ledger.rows()[:, 1] == 2)
    assert "ward-c" not in room.over


def test_a_round_whose_clients_are_all_revoked_is_passed_over(
    tmp_path: Path, fed: Federation
) -> None:
    """With one client a round: its rounds come and go without it; with nobody left, it stops."""
    plan = make_plan(fed, "pfedme", rounds=6, cohort=1)
    room = AskingRoom(tmp_path, fed, plan)
    room.revoked = {"ward-a"}
    room.run()
    assert room.hub.finished
    took_part = set(room.hub.ledger.rows()[:, 1])
    assert took_part == {1, 2}, "choose another seed: all must be drawn"
    room = AskingRoom(tmp_path / "again", fed, plan)
    room.revoked = set(NAMES)
    with pytest.raises(GaveUp, match="nobody is left who may take part"):
        room.run()


def test_a_round_is_closed_without_the_silent_where_the_plan_says_so(
    tmp_path: Path, fed: Federation
) -> None:
    plan = make_plan(
        fed, "ditto", rounds=2, rules=Rules(on_missing="go-on", patience=0.2, at_least=0.6)
    )
    room = AskingRoom(tmp_path, fed, plan, lambda k, sent: None if k == "ward-a" else sent)
    room.run()
    assert room.hub.finished
    assert sum("without ward-a" in sentence for sentence in room.said) == 2
    assert "finished; ward-a did not hear the last word." in room.said


def test_a_hub_that_is_older_than_its_clients_says_what_heals_it(
    tmp_path: Path, fed: Federation
) -> None:
    """It stops when all say so; one alone cannot stop a run."""
    plan = make_plan(fed, "fedavg", rounds=2)
    ahead = packed(refusal(Ahead(0, 1)), ())
    liar = [ahead]
    room = AskingRoom(
        tmp_path, fed, plan, lambda k, sent: liar.pop() if liar and k == NAMES[0] else sent
    )
    room.run()
    assert room.hub.finished
    assert sum("go-back" in sentence for sentence in room.said) == 1
    shutil.rmtree(tmp_path / "hub")
    room = AskingRoom(tmp_path, fed, plan)
    with pytest.raises(
        InvalidInput, match=r"round 0: ward-. has done round 1 already.*older.*hub go-back PLAN"
    ):
        room.run()


def test_nobody_who_is_there_is_said_to_be_better_revoked(tmp_path: Path, fed: Federation) -> None:
    """An older hub while one client is away: it cannot know that all are ahead, and says what the
    others told it, not that one of them should be revoked.
    """
    plan = make_plan(fed, "fedavg", rounds=2, rules=Rules(give_up=0.5))
    AskingRoom(tmp_path, fed, plan).run()
    shutil.rmtree(tmp_path / "hub")
    room = AskingRoom(tmp_path, fed, plan)
    room.away = {"ward-c"}
    with pytest.raises(GaveUp) as gave_up:
        room.run()
    told = str(gave_up.value)
    assert "has done round 1 already, so this hub's folder is older" in told
    assert "coterie hub go-back" in told
    assert told.endswith("If ward-c will never come back: `coterie keys revoke KEYS ward-c`.")
    assert "revoke KEYS ward-a" not in told


def test_the_status_says_who_is_there(tmp_path: Path, fed: Federation) -> None:
    plan = make_plan(fed, "pfedme", rounds=2, rules=Rules(patience=0.2, give_up=0.5))
    room = AskingRoom(tmp_path, fed, plan)
    room.away, room.revoked = {"ward-c"}, {"ward-b"}
    with pytest.raises(GaveUp):
        room.run()
    (now,) = read_statuses(tmp_path / "hub")
    assert [c["standing"] for c in now["clients"]] == ["there", "revoked", "gone"]
    text = Console(width=120)
    with text.capture() as shown:
        text.print(status_table(now | {"exact": False}))
    assert "never, revoked" in shown.get()
    assert "never, gone" in shown.get()
    assert "set back: not the plan's exact result" in shown.get()
    room.away, room.revoked = set(), set()
    room.run()
    (now,) = read_statuses(tmp_path / "hub")
    assert now["exact"]
    assert [c["standing"] for c in now["clients"]] == ["", "", ""]  # nobody looks any more


def test_a_client_whose_folder_is_lost_is_told_of_by_both(tmp_path: Path, fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=3, rules=Rules(give_up=0.5))
    refusals: list[str] = []

    def once(name: str, sent: bytes) -> bytes | None:
        """Its process says so, and ends."""
        if sent[2] != compact.REFUSAL:
            return sent
        refusals.append(name)
        return sent if len(refusals) == 1 else None

    room, empty = AskingRoom(tmp_path, fed, plan, once), AskingRoom(tmp_path / "empty", fed, plan)
    close = room.hub.close

    def closes() -> None:
        close()
        room.clients["ward-b"] = empty.clients["ward-b"]

    room.hub.close = closes  # type: ignore[method-assign]
    with pytest.raises(GaveUp, match="round 1: no usable answer from ward-b"):
        room.run()
    assert "had round 0 of this client, but the folder 'ward-b' knows of none" in str(room.forgot)
    said = "ward-b cannot answer: the hub has had round 0 of this client"
    (sentence,) = [sentence for sentence in room.said if said in sentence]
    assert "--newcomer" in sentence, "the command that helps is not cut off"


def test_a_hub_needs_keys_of_its_own_kind(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys", "lab")
    with pytest.raises(InvalidInput, match="must hold the keys of one hub"):
        hub_identity(tmp_path / "keys")
    with pytest.raises(InvalidInput, match="are of a client, but a hub needs"):
        hub_identity(keys.issue(tmp_path / "keys", "ward-a"))
    assert hub_identity(keys.issue(tmp_path / "keys", "hub", role="hub")).name == "hub"
    with pytest.raises(InvalidInput, match="no hub was started"):
        read_hub(tmp_path)


def test_what_a_client_is_told_before_it_joins(tmp_path: Path, fed: Federation) -> None:
    """What is wrong with its files is said at once; a plan with a hub is not for peers."""
    plan = make_plan(fed, "fedu", rounds=2)
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    save_own(fed, 0, tmp_path / "data.npz")
    keys.init(tmp_path / "keys", "lab")
    keys.issue(tmp_path / "keys", "ward-b")
    site = tmp_path / "site.toml"

    def told(more: str, *, twice: bool = False) -> str:
        rest = '[data]\npath = "data.npz"\n'
        site.write_text(f'plan = "plan.toml"\nname = "ward-a"\n{more}{rest}')
        with pytest.raises(InvalidInput) as error:
            join([site, site] if twice else [site])
        return str(error.value)

    assert "hub is '', but must be like hub.example.org:9092" in told("")
    assert "hub is 'here:0', but must be like" in told('hub = "here:0"\n')
    assert "keys is missing" in told('hub = "here:9092"\n')
    assert "are those of 'ward-b'" in told('hub = "here:9092"\nkeys = "keys/nodes/ward-b"\n')
    assert "the plan 'fedu' is given twice" in told('hub = "here:9092"\n', twice=True)
    with pytest.raises(InvalidInput, match="fedu needs a hub: run the plan with `coterie hub`"):
        peer(config=site)
