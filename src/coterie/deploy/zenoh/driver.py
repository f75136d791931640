"""Runs a peer: says what it has to say, listens, asks for what is missing, waits or goes on, and
brings dropped edges back.

`Driver` knows nothing of Zenoh but the names of its events (`net`); a test can put it on a made-up
network with a made-up clock. It is driven by one thread; only `at_once` is called by another one,
which reads what `_post` has put on the board.
"""

from __future__ import annotations

from collections.abc import Collection

from coterie.core.errors import InvalidInput
from coterie.deploy.compact import placed
from coterie.deploy.log import GaveUp
from coterie.deploy.zenoh.mending import Mending
from coterie.deploy.zenoh.sight import ANSWER_WITHIN, ASK_AGAIN, LATER, LOOK_AGAIN, SOON, listed


class Driver(Mending):
    """Drives one peer on one network.

    `refused` gives the names that are revoked; `check_self` raises when this peer may not go on.
    """

    def run(self) -> None:
        """Until the last round is done and the neighbours have what they need, or until neighbours
        are to be looked for again.

        Raises GaveUp, InvalidInput or Diverged.
        """
        while True:
            for _ in range(
                64
                # not for ever: a neighbour that talks without end must not keep this peer from
                # working
            ):
                if (event := self.net.next(0)) is None:
                    break
                self.handle(event)
            wait = self.step()
            if wait is None:
                return
            if wait > 0 and (event := self.net.next(wait)) is not None:
                self.handle(event)

    def step(self) -> float | None:
        """Do what can be done now; how long to wait for events before the next step, or nothing
        when all is done.
        """
        now, peer = self.clock(), self.peer
        self._police(now)
        if peer.done:
            return self._linger(now)
        if peer.t >= self.rounds:
            return None
        if peer.goes_on:
            self._mend(now)
            if self.leap is not None:
                return 0.2 if self.leap.pending else 0.0
            self._skip()
            if peer.t >= self.rounds:
                return 0.0
        if not peer.begun or self.sent_round != peer.t:
            self._police(now, always=True)
            self._speak()
            return 0.0
        missing = peer.missing
        if not missing:
            self._finish(())
            return 0.0
        return self._wait(now, missing)

    def _speak(self) -> None:
        t, _ = self.peer.begin()
        there = [
            name
            for name in self.peer.recipients
            if self.sights[name].alive and name not in self.refused
        ]  # who comes later asks
        for name in there:
            self._sent[name] = frozenset(
                {t, *(self._sent.get(name, frozenset()) & self.peer.outbox.keys())}
            )
        self._post()  # before it is sent: who asks meanwhile must not get it twice
        for name in there:
            letter = self.peer.letter(name, t)
            self.net.send(name, placed(self.peer.position(name)), letter)
            self.carried["sent"] += len(letter)
        self.sent_round, self.since = t, self.clock()
        for name in self.peer.recipients:
            self.sights[name].pause = ASK_AGAIN[0]
            self.sights[name].ask_at = self.since + ASK_AGAIN[0]

    def _finish(self, silent: Collection[str]) -> None:
        for name in silent:
            behind = self.peer.t - self.peer.states[name].last
            if behind <= self.peer.staleness:
                self.say(
                    f"round {self.peer.t}: {name} is silent; its message of round"
                    f" {self.peer.states[name].last} counts again."
                )
        self.peer.finish(silent)
        self._post()

    def _wait(self, now: float, missing: list[str]) -> float:
        """Some messages of this round are not there."""
        silence = {name: now - max(self.since, self.sights[name].news) for name in missing}
        if self.peer.goes_on:
            # Who is there may itself be waiting for somebody who is not: it gets twice the time. A
            # federation begins together: round 0 waits for all.
            begins = max(self.rules.give_up, self.rules.patience) if self.peer.t == 0 else 0.0
            limits = {
                name: begins or self.rules.patience * (2 if self.sights[name].alive else 1)
                for name in missing
            }
            left = max(limits[name] - silence[name] for name in missing)
            if left < 1e-3:
                self._finish(missing)
                return 0.0
        else:
            self._check_kept(missing)
            left = self.rules.give_up - min(silence.values())
            if left <= 0:
                raise GaveUp(
                    f"round {self.peer.t}: nothing came from {listed(missing)} for"
                    f" {self.rules.give_up:g} s, and the plan says to wait; this peer stops, and"
                    " the same command goes on where it stopped."
                )
        self._announce(now, missing)
        return max(1e-3, min(left, self._nag(now, missing)))

    def _announce(self, now: float, missing: list[str]) -> None:
        """Say once in a round, and then every minute, for whom this peer waits."""
        (t, at), since = self._announced, self.ended if self.peer.done else self.since
        if now - since > SOON and (t != self.peer.t or now - at > LATER):
            self._announced = (self.peer.t, now)
            away = [name for name in missing if not self.sights[name].alive]
            what = "all rounds are done" if self.peer.done else f"round {self.peer.t}"
            self.say(
                f"{what}: waiting for {listed(missing)} since {now - since:.0f} s"
                + (f" (not connected: {listed(away)})." if away else ".")
            )

    def _check_kept(self, missing: list[str]) -> None:
        for name in missing:
            sight = self.sights[name]
            if sight.round >= 0 and sight.oldest > self.peer.wants(name):
                raise InvalidInput(
                    f"round {self.peer.t}: {name} is in round {sight.round} and has no message of"
                    f' round {self.peer.wants(name)} any more; with on_missing = "wait" that'
                    " happens only when a peer's folder was lost or replaced: restore it, or"
                    " begin a new run."
                )

    def _nag(self, now: float, missing: Collection[str]) -> float:
        """Ask those whose message is missing; seconds until the next question."""
        due = [LOOK_AGAIN]
        for name in missing:
            sight = self.sights[name]
            if not sight.alive or sight.asking or name in self.refused:
                continue
            if now >= sight.ask_at:
                self._ask(name)
                sight.pause = min(sight.pause * 2, ASK_AGAIN[1])
                sight.ask_at = now + sight.pause
            due.append(sight.ask_at - now)
        return max(0.02, min(due))

    def _linger(self, now: float) -> float | None:
        """All rounds are done: stay until the neighbours have what they need of this peer, for a
        bounded time.
        """
        peer = self.peer
        if not peer.finished:
            peer.end()
        if self.ended == float("inf"):
            self.ended = now
            self._post()
            for sight in self.sights.values():
                sight.ask_at = 0.0
        limit = self.rules.patience * (peer.staleness + 2) if peer.goes_on else self.rules.give_up
        waiting = []
        for name, sight in self.sights.items():
            counts = name not in self.refused and (
                peer.states[name].active or peer.states[name].entry >= 0
            )
            if not counts or (sight.round >= self.rounds and (sight.acked or not sight.alive)):
                continue
            patience = limit if sight.alive or not peer.goes_on else self.rules.patience
            if now - max(self.ended, sight.news) < patience:
                waiting.append(name)
            elif not sight.warned:
                sight.warned = True
                self.say(
                    f"{name} has not reported the end for {patience:g} s; not waiting for it any"
                    " longer."
                )
        if not waiting:
            peer.look(now=True)
            return None
        self._announce(now, waiting)
        for name in waiting:
            sight = self.sights[name]
            if sight.alive and not sight.asking and now >= sight.ask_at:
                self._ask(name)
                sight.ask_at = now + 1.0
        return 0.2

    def _police(self, now: float, *, always: bool = False) -> None:
        if not always and now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        if not self.peer.done:
            self._check_self()
        for name, sight in self.sights.items():
            if sight.asking and now - sight.asked_at > 2 * max(
                ANSWER_WITHIN, self.rules.patience
            ):  # Zenoh should have reported that there is no answer
                sight.asking = False
                if self.leap is not None:
                    self.leap.pending.discard(name)
        refused = frozenset(self._refused()) & set(self.sights)
        for name in refused - self.refused:
            self.say(
                f"round {self.peer.t}: {name} is revoked; it is ignored and gets nothing, and its"
                " edge is dropped."
            )
            self.peer.expect(name, -1)
        if refused != self.refused:
            self.refused = refused
            self._post()
