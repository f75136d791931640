"""How an edge of a peer comes back.

With "go-on" only. Who notices that it is down (dropped here, or there, or the message that is
needed next is no longer kept) proposes a round E that neither has begun. It expects the neighbour
from E on *before* it asks, so that whatever becomes of the answer both either do the same, or one
waits in round E for as long as anybody is waited for, drops the edge again, and it begins anew. If
both propose at once, both take the later round. Between a peer that is behind and one that is not,
the former proposes: one E to all neighbours that are there; it does nothing until all have
answered, and jumps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.deploy.peer_record import FARTHEST
from coterie.deploy.zenoh.net import packed
from coterie.deploy.zenoh.sight import ANSWER_WITHIN, LOOK_AGAIN, Leap
from coterie.deploy.zenoh.talk import Talk

PROPOSALS = 8


class Mending(Talk):
    """Proposes to have edges back, and settles what is proposed."""

    def _lost(self, name: str) -> bool:
        """Whether the message that is needed next is no longer kept by the neighbour."""
        return self.sights[name].oldest > self.peer.wants(name)

    def _down(self, name: str) -> bool:
        """Whether an edge is down and nothing is on its way to bring it back."""
        view, sight, t = self.peer.states[name], self.sights[name], self.peer.t
        if not sight.alive or not sight.fresh or name in self.refused or sight.round >= self.rounds:
            return False
        if sight.entry > sight.round and sight.entry != view.entry:
            return False  # its own proposal is on its way here, or runs out
        if view.active:
            return not sight.counts or self._lost(name)
        if view.entry == -1:
            return True
        agreed = sight.entry == view.entry or (sight.counts and sight.oldest <= view.entry)
        return view.entry > t and not agreed

    def _mend(self, now: float) -> None:
        """Propose to have edges back."""
        if self.leap is not None:
            if not self.leap.pending:
                self._resolve(now)
            return
        for name, sight in self.sights.items():
            if (
                sight.alive
                and not sight.asking
                and name not in self.refused
                and not self.peer.awaited(name)
                and now >= sight.ask_at
            ):
                self._ask(name)
                sight.ask_at = now + LOOK_AGAIN
        down = [
            name
            for name in self.sights
            if self._down(name)
            and not self.sights[name].asking
            and now >= self.sights[name].propose_at
        ]
        if not down:
            return
        t = self.peer.t
        behind = [name for name in down if self.sights[name].round > t + 1]
        if behind and now >= self.leap_at:
            there = [
                n
                for n, s in self.sights.items()
                if s.alive and s.round >= 0 and s.round < self.rounds and n not in self.refused
            ]
            if any(self.sights[n].asking for n in there):
                return  # one question at a time
            self._propose_jump(there, 0, 1)
            return
        for name in down:
            sight = self.sights[name]
            sight.fresh = False
            entry = max(self.peer.earliest(name), sight.round + 2)
            if (
                entry < self.rounds and name not in behind and sight.round >= t - 1
            ):  # who is behind proposes: it knows when it has time
                self._propose(name, entry)

    def _propose(self, name: str, entry: int) -> None:
        """Ask one neighbour to count its edge again from `entry` on; from then on it is
        expected.
        """
        self.peer.expect(name, entry)
        self._post()
        self.sights[name].asking, self.sights[name].asked_at = True, self.clock()
        self.net.ask(
            name,
            ("enter", entry),
            packed(json.dumps({"position": self.peer.position(name), "enter": entry}), ()),
            max(ANSWER_WITHIN, self.rules.patience),
        )

    def _propose_jump(self, there: list[str], least: int, attempt: int) -> None:
        entry = max(
            least,
            *(self.sights[n].round + 2 for n in there),
            *(self.peer.earliest(n) for n in there),
        )
        if entry >= self.rounds or attempt > PROPOSALS:
            why = (
                "their rounds are almost done"
                if entry >= self.rounds
                else "no round could be agreed on"
            )
            self.say(
                f"round {self.peer.t}: too far behind the others, and {why}; this peer goes on"
                " without those that do not count it any more."
            )
            self.leap, self.leap_at = None, self.clock() + 10 * LOOK_AGAIN
            for name in there:
                self.sights[name].fresh = False
                if self.peer.states[name].active and (
                    self._lost(name) or not self.sights[name].counts
                ):
                    self.peer.expect(name, -1)
            return
        self.leap = Leap(entry, set(there), attempts=attempt)
        for name in there:
            self.sights[name].fresh = False
            self._propose(name, entry)

    def _settle(self, name: str, asked: int, answer: Mapping[str, Any]) -> None:
        """The answer to a proposal, if there is one."""
        peer, leap, sight = self.peer, self.leap, self.sights[name]
        settled, earliest = (
            v if type(v := answer.get(key, -1)) is int else -1 for key in ("entry", "earliest")
        )
        sight.propose_at = self.clock() + (0 if settled >= 0 else 0.5)
        if leap is not None and name in leap.pending:
            leap.pending.discard(name)
            if settled == leap.entry:
                leap.agreed.add(name)
            leap.later = max(leap.later, settled, earliest if earliest <= peer.t + FARTHEST else 0)
            return
        if settled > asked and settled > peer.t:
            peer.expect(name, settled)
        elif (
            settled < 0
            and (earliest >= 0 or sight.round >= self.rounds)
            and peer.states[name].entry == asked > peer.t
        ):
            peer.expect(name, -1)  # declined; it is proposed again, unless the neighbour is done
        self._post()

    def _resolve(self, now: float) -> None:
        """All have answered a proposal to jump, or did not in time."""
        leap = self.leap
        assert leap is not None
        if leap.later > leap.entry or (leap.agreed and leap.entry <= self.peer.t):
            there = [
                n
                for n, s in self.sights.items()
                if s.alive and s.round >= 0 and s.round < self.rounds and n not in self.refused
            ]
            self.leap = None
            if there:
                self._propose_jump(
                    there, max(leap.later, leap.entry) + 2**leap.attempts, leap.attempts + 1
                )  # they may be quicker than the answer
            return
        self.leap = None
        if leap.agreed:
            self.peer.jump(leap.entry, leap.agreed)
            self._post()
        else:
            self.leap_at = now + LOOK_AGAIN

    def _skip(self) -> None:
        """A peer that counts nobody until a round that is agreed on need not work alone until
        then.
        """
        peer = self.peer
        entries = [view.entry for view in peer.states.values() if view.entry > peer.t]
        if (
            entries
            and not peer.begun
            and not any(map(peer.awaited, peer.states))
            and min(entries) > peer.t + 2
        ):
            peer.jump(
                min(entries),
                [name for name, view in peer.states.items() if view.entry == min(entries)],
                "nobody counts here until then",
            )
            self._post()
