"""Large answers come a few at a time: nothing is lost, nobody keeps the others waiting for long."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import Federation
from coterie.deploy import compact, hub_aside
from coterie.deploy.messages import Reply
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.setup import Setup
from coterie.deploy.zenoh import star, turns
from coterie.deploy.zenoh.net import Answered, Seen
from coterie.deploy.zenoh.turns import READY, SEND, TOGETHER, TURN, Turns
from coterie.engine.simulate import Simulator, drive
from coterie.models.base import get_model
from tests.support.asking_room import AskingRoom
from tests.support.hub_lab import NAMES, Lab, make_plan, wait_for

LARGE = """
import sys
from coterie.cli.main import start
from coterie.deploy import hub_aside
hub_aside.MEMORY = hub_aside.UNDER_WAY = 0
sys.argv[0] = "coterie"
start()
"""
"""The hub's command, for which every answer is large."""
STRUCK = """
import os
import sys
from pathlib import Path
from coterie.deploy.zenoh import join
honest, marker = join.answer, Path({marker!r})
def answer(client, event, say):
    if event.payload == b"" and client.kept.worked >= 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), {sign})
    honest(client, event, say)
join.answer = answer
join.join([Path(sys.argv[1])])
"""
"""A client that is killed or stopped when it is asked to send."""


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, unsynced: None) -> None:
    """Every answer is large: one at a time."""
    monkeypatch.setattr(hub_aside, "MEMORY", 0)
    monkeypatch.setattr(hub_aside, "UNDER_WAY", 0)
    monkeypatch.setattr(star, "ASK_AGAIN", (0.0, 0.0))


class Counting(AskingRoom):
    """Counts the answers that are on their way, and says what was asked."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[tuple[str, bool, bool]] = []
        self.under_way = self.most = 0

    def ask(
        self, name: str, question: Any, payload: bytes, timeout: float, *, hold: bool = False
    ) -> None:
        self.asked.append((name, hold, payload == SEND))
        before = self.events.qsize()
        super().ask(name, question, payload, timeout, hold=hold)
        if payload == SEND and self.events.qsize() > before:
            self.under_way += 1
            self.most = max(self.most, self.under_way)

    def next(self, timeout: float) -> Any:
        event = super().next(timeout)
        if isinstance(event, Answered) and event.payload and self.under_way:
            self.under_way -= 1
        return event


def assert_exact(room: AskingRoom, plan: Plan, fed: Federation, view: str) -> None:
    simulator = Simulator(plan.method, fed, plan.model, plan.training, plan.coupling)
    list(drive(simulator))
    for k, name in enumerate(NAMES):
        mine = room.clients[name].models()[view].flat()
        np.testing.assert_array_equal(mine, simulator.models(k)[view].flat())


@pytest.mark.parametrize(("method", "view"), [("fedu", "personal"), ("fedavg", "global")])
def test_large_answers_come_one_at_a_time_and_the_result_is_exact(
    method: str, view: str, tmp_path: Path, fed: Federation, large: None
) -> None:
    plan = make_plan(fed, method, rounds=3)
    room = Counting(tmp_path, fed, plan)
    room.run()
    assert room.hub.finished
    assert room.most == 1
    assert "answers are large: at most 1 clients send theirs at a time." in room.said
    assert sum(sends for _, _, sends in room.asked) == 3 * len(NAMES)
    assert_exact(room, plan, fed, view)
    assert [client.rejected for client in room.hub.clients] == [0, 0, 0]


def test_small_answers_are_not_held(tmp_path: Path, fed: Federation, unsynced: None) -> None:
    """One question a round, as ever."""
    room = Counting(tmp_path, fed, make_plan(fed, "fedavg", rounds=2))
    room.run()
    assert room.asked
    assert not any(hold or sends for _, hold, sends in room.asked)
    assert hub_aside.at_a_time(Setup(make_plan(fed, "fedavg"))) is None


def test_as_many_send_as_the_allowance_holds(fed: Federation) -> None:
    setup = Setup(make_plan(fed, "fedavg"))
    setup.largest_up = 100 << 20
    assert hub_aside.at_a_time(setup) == 1
    setup.largest_up = 60 << 20
    assert hub_aside.at_a_time(setup) is None
    setup.plan = setup.plan.with_(clients=tuple(f"site-{k}" for k in range(100)))
    assert hub_aside.at_a_time(setup) == 2


def test_a_client_that_knows_nothing_of_turns_answers_at_once(
    tmp_path: Path, fed: Federation, large: None
) -> None:
    class Older(Counting):
        def ask(self, *given: Any, hold: bool = False) -> None:
            super().ask(*given, hold=hold and given[0] != "ward-a")

    plan = make_plan(fed, "fedavg", rounds=2)
    room = Older(tmp_path, fed, plan)
    room.run()
    assert ("ward-a", False, True) not in room.asked
    assert_exact(room, plan, fed, "global")


def test_what_was_ready_and_is_not_there_is_asked_for_again(
    tmp_path: Path, fed: Federation, large: None
) -> None:
    """A client that comes back, and one that says that it is ready where it is to send."""
    plan = make_plan(fed, "fedavg", rounds=2)
    lies: list[str] = []

    class Flaky(Counting):
        def ask(self, name: str, question: Any, payload: bytes, *rest: Any, hold: bool) -> None:
            if payload == SEND and name not in lies and name != "ward-c":
                lies.append(name)
                if name == "ward-a":  # gone in its turn, and back
                    self.events.put(Seen(name, False))
                    self.events.put(Seen(name, True))
                else:
                    self.events.put(Answered(name, question, READY))
                return
            super().ask(name, question, payload, *rest, hold=hold)

    room = Flaky(tmp_path, fed, plan)
    room.run()
    assert sorted(lies) == ["ward-a", "ward-b"]
    assert [client.rejected for client in room.hub.clients] == [0, 1, 0]
    assert_exact(room, plan, fed, "global")


def test_who_is_stuck_in_its_turn_does_not_keep_the_others_waiting(
    tmp_path: Path, fed: Federation, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN", 0.1)
    rules = Rules(on_missing="go-on", patience=0.7, at_least=0.6)
    plan = make_plan(fed, "ditto", rounds=2, rules=rules)
    stuck = lambda name, sent: None if name == "ward-a" and sent != READY else sent
    room = Counting(tmp_path, fed, plan, stuck)
    room.run()
    assert room.hub.finished
    assert sum("without ward-a" in sentence for sentence in room.said) == 2
    took_part = {(int(t), int(k)) for t, k in room.hub.ledger.rows()[:, :2] if t < 2}
    assert took_part == {(t, k) for t in range(2) for k in (1, 2)}


def test_who_is_ready_too_late_is_asked_in_the_next_round(
    tmp_path: Path, fed: Federation, large: None
) -> None:
    """The round is closed while a client waits for its turn."""
    plan = make_plan(
        fed, "fedavg", rounds=2, rules=Rules(on_missing="go-on", patience=0.3, at_least=0.3)
    )
    room = Counting(tmp_path, fed, plan)
    given = room.asking.turns.next
    room.asking.turns.next = lambda now: given(now) if room.hub.t else []  # type: ignore[method-assign]
    room.hub.take(0, room.clients["ward-a"].answer(room.hub.question(0)))
    room.run()
    assert room.hub.finished
    assert any("round 0: 1 clients, without ward-b, ward-c" in line for line in room.said)
    assert not any("round 1" in line and "without" in line for line in room.said)


def test_turns_are_taken_in_order_and_end_by_themselves() -> None:
    some = Turns(2)
    assert all(some.wait(k) for k in (5, 1, 3, 4))
    assert some.next(0.0) == [5, 1]
    assert not some.wait(5)
    assert some.next(1.0) == []
    some.leave(1)
    assert some.next(2.0) == [3]
    assert some.next(TURN) == [4]
    assert some.close() == []
    assert not Turns(None).wait(0)


def test_many_slow_links_together_have_an_end() -> None:
    """Nobody whose turn is over sends less for it: 8 of 2 at a time, and no more."""
    some = Turns(2)
    assert all(some.wait(k) for k in range(20))
    found = [k for i in range(10) for k in some.next(i * TURN)]
    assert found == [*range(2 * TOGETHER)]
    some.leave(3)
    assert some.next(20 * TURN) == [2 * TOGETHER]


def test_a_held_answer_is_on_disk(tmp_path: Path, fed: Federation, large: None) -> None:
    """A client that is started again sends what it had."""
    plan = make_plan(fed, "fedu", rounds=2)
    room = AskingRoom(tmp_path, fed, plan)
    question = compact.coded(room.hub.question(0))
    got: list[bytes | None] = []
    star.answer(room.clients["ward-a"], star.Asked("hub", question, got.append, True), print)
    again = AskingRoom(tmp_path, fed, plan).clients["ward-a"]
    star.answer(again, star.Asked("hub", SEND, got.append), print)
    star.answer(again, star.Asked("hub", question, got.append), print)
    fresh = AskingRoom(tmp_path / "fresh", fed, plan).clients["ward-a"]
    star.answer(fresh, star.Asked("hub", SEND, got.append), print)
    assert got[0] == READY
    assert got[1] == got[2]
    assert got[3] is None
    assert len(star.opened(Reply, got[1] or b"", 1).frames) == 1


@pytest.mark.slow
def test_real_processes_that_die_and_stop_in_their_turn(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """Answers of 6 MB, one at a time: a client is killed when it is asked to send, one stops then
    for longer than Zenoh's lease, the hub is killed; the result is exact.
    """
    plan = make_plan(fed, "fedu", rounds=12, eval_every=100)
    plan = plan.with_(model=get_model("mlp", {"hidden": "20000"}))
    l = hub_lab(plan)
    l.up()
    struck = {"ward-a": signal.SIGKILL, "ward-b": signal.SIGSTOP}
    for name, sign in struck.items():
        code = STRUCK.format(sign=int(sign), marker=str(l.folder / f"{name}-struck"))
        l.start(name, l.folder / name / f"{plan.name}.toml", code=code)
    l.join("ward-c")
    wait_for((l.folder / "hub" / "hub.json").is_file)
    run = ("hub", "run", l.folder / f"{plan.name}.toml", "--folder", l.folder / "hub")
    l.start("run", *run, code=LARGE)
    wait_for((l.folder / "ward-b-struck").exists, 300)
    begun = time.monotonic()
    assert l.finish("ward-a", 60) == -signal.SIGKILL
    l.join("ward-a")
    wait_for(lambda: "ward-b is gone" in l.said("run"), 60)
    assert time.monotonic() - begun < TURN + 10
    l.kill("ward-b", sign=signal.SIGCONT)
    wait_for(lambda: l.round(plan) >= 6 or l.processes["run"].poll() is not None, 300)
    l.kill("run")
    l.start("again", *run, code=LARGE)
    assert l.finish("again", 400) == 0, l.logs()
    l.assert_equal(plan)
