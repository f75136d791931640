"""Strike, heal, and see that a round follows."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from coterie.deploy.chaos.schedule import LINKS, Event, rounds_for, schedule
from coterie.deploy.chaos.town import FULL, SKEW, HubTown, PeerTown, Struck, Town
from coterie.deploy.demo.outcome import Row
from coterie.deploy.demo.processes import DemoFailed, wait_for
from coterie.deploy.demo.setting import Say

STUCK = 180.0
"""Seconds after the end of a fault within which a round must come."""


class Ended(NamedTuple):
    """A fault that is over."""

    event: Event
    went_on: float
    """Seconds from its end to the next round."""


def carry_out(
    folder: Path, seed: int, events: int, say: Say, *, peers: bool = False, every: int = 30
) -> tuple[list[Ended], list[Row]]:
    """Run a federation under a schedule of faults, to its end. Raises DemoFailed where no round
    follows a fault, or somebody ends badly.
    """
    names = [f"peer-{k}" for k in range(5)] if peers else [f"site-{k}" for k in range(3)]
    everybody = names if peers else ["hub", "gate", *names]
    plan = schedule(seed, events, everybody, names, every)
    town = (PeerTown if peers else HubTown)(folder, rounds_for(plan, every))
    with _open(town):
        town.open()
        _wait(town, 1, "the first round")
        ended: list[Ended] = []
        for group in _together(plan):
            _wait(town, group[0].at, f"round {group[0].at}")
            if town.over():
                raise DemoFailed(f"the run was over before {group[0]}.")
            ended += _strike(town, group, say)
        end = time.monotonic() + STUCK
        while not town.over():
            if problem := town.failed():
                raise DemoFailed(problem)
            if time.monotonic() > end:
                raise DemoFailed(f"the run did not end; it is in round {town.round()}.")
            time.sleep(0.1)
        return ended, town.rows()


@contextlib.contextmanager
def _open(town: Town) -> Iterator[None]:
    try:
        yield
    finally:
        town.close()


def _together(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Those of the same round."""
    rounds = dict.fromkeys(event.at for event in events)
    return ([event for event in events if event.at == at] for at in rounds)


def _strike(town: Town, events: Sequence[Event], say: Say) -> list[Ended]:
    begun = time.monotonic()
    for event in events:
        _begin(town, event)
    for event in sorted(events, key=lambda event: event.seconds):
        time.sleep(max(0.0, begun + event.seconds - time.monotonic()))
        _end(town, event)
    for event in events:
        _mend(town, event)
    # Messages may have been under way: the second round from now is one that began after the end.
    healed = time.monotonic()
    _wait(town, town.round() + 2, f"a round after {'; '.join(map(str, events))}", over=True)
    went_on = time.monotonic() - healed
    for event in events:
        say(f"{event}; the next round {went_on:.1f} s after it")
    return [Ended(event, went_on) for event in events]


def _begin(town: Town, event: Event) -> None:
    if event.kind in LINKS:
        town.proxies.set(event.who, event.kind)
    elif event.kind == "stop":
        _signal(town.processes, event.who, signal.SIGSTOP)
    else:
        town.processes.kill(event.who)
        if event.kind == "disk":
            town.start(event.who, "disk", FULL)
        elif event.kind == "clock":
            town.start(event.who, "clock", SKEW if event.at % 2 else -SKEW)


def _end(town: Town, event: Event) -> None:
    if event.kind in LINKS:
        town.proxies.set(event.who, "open")
    elif event.kind == "stop":
        _signal(town.processes, event.who, signal.SIGCONT)
    elif event.kind == "kill":
        town.start(event.who)


def _mend(town: Town, event: Event) -> None:
    """What lasts as long as it takes: who has no room on the disk must say so (a client then waits
    for room, everybody else ends); who has the wrong clock must do a round with it.
    """
    if event.kind == "disk":
        words = lambda: town.processes.last_words(event.who)
        struck = town.processes.running[event.who]
        full = lambda: "cannot be written" in words()
        wait_for(
            f"a word on the disk ({event})", lambda: full() or struck.poll() is not None, STUCK
        )
        time.sleep(0.5)  # what an ended process said last may still be on its way into the log
        if not full():
            raise DemoFailed(f"{event}: its last words do not say that the disk is full: {words()}")
    elif event.kind == "clock":
        _wait(town, town.round() + 2, f"a round in spite of {event}", over=True)
    else:
        return
    town.processes.kill(event.who)
    town.start(event.who)


def _signal(processes: Struck, name: str, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(processes.running[name].pid, sign)


def _wait(town: Town, t: int, what: str, *, over: bool = False) -> None:
    """Until a round; with `over` the end of the run is enough."""
    end = time.monotonic() + STUCK
    while town.round() < t and not (over and town.over()):
        if problem := town.failed():
            raise DemoFailed(f"while waiting for {what}: {problem}")
        if time.monotonic() > end:
            raise DemoFailed(
                f"stuck: {what} did not come within {STUCK:.0f} s; see {town.folder / 'logs'}."
            )
        time.sleep(0.05)
