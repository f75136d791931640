"""A peer: a client without a hub, who knows only itself and its neighbours.

Whatever carries the messages (Zenoh, a test) drives it:

    t, wire = peer.begin()             # the local work of a round
    peer.letter(name, t)               # what to send to each of `recipients`
    peer.hear(name, t, wire)           # whatever arrives, in any order, however often
    peer.finish(silent)                # mix with what is there; on to the next round

What a peer keeps is in one file of its own folder, written after the local work and after the
mixing. A restarted peer sends again what it sent last, and neighbours keep what they sent in the
last two rounds: with "wait" a crash anywhere changes nothing.

With "go-on" a neighbour that is silent counts with its last message for at most `staleness` rounds;
then its edge is dropped. What was sent is kept for `staleness` + 2 rounds, so that who comes back
before that makes up for what it missed. After that either side asks to have the edge back from an
agreed round on that neither has begun (`expect`, `agree`); in that round both send whole messages.
A peer that fell too far behind jumps to the agreed round; it does not make up for the rounds in
between.

Peers that look for their kin again and again (finding.py) go on with other neighbours after a
search (`join`). Who is new gets a whole message in the first round, the others what they would get
anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import numpy as np

from coterie.channel import ends
from coterie.core.errors import Diverged
from coterie.core.typing import PyTree
from coterie.core.vector import Vector, all_finite
from coterie.deploy import messages, programs
from coterie.deploy.messages import Rejected
from coterie.deploy.neighbour import open_letters
from coterie.deploy.peer_record import PeerRecord
from coterie.engine.exchange.graph import compares_itself
from coterie.engine.setting import ClientState
from coterie.runs.export import write_models


class Peer(PeerRecord):
    """One peer, round by round."""

    def begin(self) -> tuple[int, bytes]:
        """The local work of this round (once) and its message: (round, bytes). What each of the
        `recipients` gets, `letter` says.
        """
        assert not self.done
        if not self.begun:
            with self.worker.precision():
                self._begin()
        return self.t, self.outbox[self.t]

    def _begin(self) -> None:
        t, kept = self.t, self.kept
        scores = self._scores() if self.plan.evaluates(t) else kept.scores
        entering = kept.entry == t or any(state.entry == t for state in self.states.values())
        done = self.worker.work(kept.state, (), t, sending=True, whole=entering and t != self.first)
        assert done.wire is not None
        outbox = {r: w for r, w in self.outbox.items() if r > t - self.remembered}
        whole = kept.whole if self.first in outbox else b""
        if t == self.first and kept.joined and self.worker.up.copies:
            # The others go on as they were; who is new begins with what they have after this.
            whole = ends.whole_copy(done.state.up.public)
        self._keep(
            state=done.state,
            message=done.message,
            outbox=outbox | {t: done.wire},
            whole=whole,
            begun=True,
            recipients=[name for name in self.states if self.awaited(name)],
            gradients=done.gradients,
            scores=scores,
        )

    def hear(self, name: str, t: int, wire: bytes) -> bool:
        """A neighbour's message of round t; True when it is new. Raises Rejected, and then nothing
        has changed but the count of rejections.
        """
        if name not in self.states:
            raise Rejected(f"{name!r} is not a neighbour.")
        try:
            with self.worker.precision():
                return self._hear(name, t, wire)
        except Rejected:
            self.reject(name)
            raise

    def _hear(self, name: str, t: int, wire: bytes) -> bool:
        state = self.states[name]
        if not 0 <= t < self.plan.exchanges:
            raise Rejected(f"the message is of round {t}, but the plan has {self.plan.exchanges}.")
        if len(wire) > self.largest:
            raise Rejected(
                f"the message has {len(wire)} bytes, but must have at most {self.largest}."
            )
        if not state.is_new(t, wire) or t > self.t + 1 or (not self.goes_on and t < self.t):
            return False
        if not state.active and not 0 <= state.entry <= t:
            return False
        self._know(name, dataclasses.replace(state, inbox={**state.inbox, t: wire}))
        self._open(name)
        return True

    def _open(self, name: str) -> None:
        """Open what can be opened of what a neighbour sent. Raises Rejected."""
        number = self.neighbours[name].number
        state, error = open_letters(self.worker, self.states[name], number, self.t)
        self._know(name, state)
        if error is not None:
            raise messages.refuse(error) from None

    def finish(self, silent: Collection[str] = ()) -> None:
        """Mix with the neighbours' messages; those of `silent` count with their last one, or no
        more.
        """
        assert self.begun
        assert set(self.missing) <= set(silent), self.missing
        with self.worker.precision():
            self._finish()

    def _finish(self) -> None:
        t, kept, near, states, down = self.t, self.kept, [], {}, 0
        dropped = []
        for name, before in self.states.items():
            state, size = before.used(t)
            down += size
            if state.counts(t) and t - state.round > self.staleness:
                dropped.append(name)
            elif state.counts(t):
                near.append((state.message, self.neighbours[name].weight))
            if not self.goes_on:  # an old message never counts again
                state = dataclasses.replace(state, message=())
            states[name] = state.after(t, dropped=name in dropped, remembered=self.remembered)
        bill = self.ledger.copy()
        up = sum(len(self.letter(name, t)) for name in self.recipients)
        bill.add(self.plan.at(t), np.array([self.number]), up, down, kept.gradients)
        mixed = self._mixed(near or [(kept.message, 0.0)])
        self._keep(state=mixed, neighbours=states, begun=False, recipients=[], t=t + 1, ledger=bill)
        for name in self.states:
            try:
                self._open(name)  # a whole message may have waited for its turn
            except Rejected as error:
                self.reject(name)
                self.say(f"round {t + 1}: a message of {name} is rejected: {error}")
        for name in dropped:
            self.say(
                f"round {t}: nothing of {name} since round {states[name].round}; its edge is"
                " dropped until it comes back."
            )

    def _mixed(self, near: list[tuple[PyTree, float]]) -> ClientState:
        """This peer after its neighbours' pull. Raises Diverged."""
        worker, kept = self.worker, self.kept
        weights = np.array([w for _, w in near], worker.dtype)
        at = self.plan.at(self.t)
        weights = programs.effective(self.method, weights, at)
        own = kept.message
        if compares_itself(worker.now(self.t)):
            own = programs.message_of(self.method, kept.state.method_state)
        pull = programs.pull(self.method, own, programs.stacked([m for m, _ in near]), weights)
        state = programs.absorb(worker.spec, worker.setting, at, kept.state, pull, kept.message)
        if not bool(all_finite(state.method_state)):
            raise Diverged(self.method.title, self.t + 1, [self.number])
        return state

    def end(self) -> None:
        """After the last round: score and write the models down."""
        with self.worker.precision():
            self._keep(finished=True, scores=self._scores())
        self.export(self.folder / "models")
        self.look(now=True)

    # -- looking -----------------------------------------------------------------------------------

    def models(self) -> dict[str, Vector]:
        """This peer's models as they are now, by view, as numpy arrays."""
        with self.worker.precision():
            models = self.worker.models((), self.kept.state.method_state, self.t)
            return {view: v.map(np.asarray) for view, v in models.items()}

    def _scores(self) -> dict[str, float]:
        return self.worker.scores((), self.kept.state.method_state, self.t)

    def export(self, folder: Path) -> list[Path]:
        """Write the models as safetensors files, one per view."""
        facts = {
            "client": str(self.number),
            "method": self.method.name,
            "round": str(self.t),
            "model": self.plan.model.name,
        }
        return write_models(self.models(), facts, folder)
