"""A peer: a client without a hub, who knows only itself and its neighbours.

Whatever carries the messages (Zenoh, a test) drives it:

    t, wire = peer.begin()             # the local work of a round, and what to tell `peer.told`
    peer.hear(name, t, wire)           # whatever arrives, in any order, however often
    peer.finish(silent)                # mix with what is there; on to the next round

What a peer keeps is in one file of its own folder, written after the local work and after the
mixing. A restarted peer says again what it said last, and neighbours keep what they said in the
last two rounds: with "wait" a crash anywhere changes nothing.

With "go-on" a neighbour that is silent counts with its last message for at most `staleness` rounds;
then its edge is dropped. What was said is kept for `staleness` + 2 rounds, so that who comes back
before that makes up for what it missed. After that either side asks to have the edge back from an
agreed round on that neither has begun (`expect`, `agree`); in that round both send whole messages.
A peer that fell too far behind jumps to the agreed round; it does not make up for the rounds in
between.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from coterie.channel import link
from coterie.channel.codec import Identity
from coterie.core.errors import Diverged, InvalidInput
from coterie.core.files import write_json, write_table
from coterie.core.ledger import COLUMNS, Ledger
from coterie.core.randomness import Role, per_client, stream
from coterie.core.vector import Vector, all_finite
from coterie.data.federation import Federation
from coterie.deploy import lines, messages
from coterie.deploy.messages import Rejected
from coterie.deploy.plan import Plan
from coterie.deploy.state import Bundle
from coterie.deploy.worker import Worker, absorbed, message_of, pulled
from coterie.engine.rounds import Row, compares_itself
from coterie.runs.export import write_models

FILE = "peer.safetensors"
KEPT_ROUNDS = 2
FARTHEST = 1000
"""Rounds ahead for which an edge may be agreed on."""
LOOK_SECONDS = 1.0
"""ledger.parquet and status.json, which are for looking at, are not written more often than this.
"""


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A neighbour as the config names it."""

    name: str
    number: int
    weight: float


class Heard(NamedTuple):
    """A message that was opened but not used yet, the receiving end of the link after it, and its
    size.
    """

    message: Any
    public: Any
    size: int


@dataclasses.dataclass(frozen=True)
class View:
    """What a peer knows of a neighbour."""

    public: Any = ()
    message: Any = ()
    round: int = -1
    """Of its last message that was used."""
    active: bool = True
    entry: int = -1
    """The round from which it counts again, if one was agreed."""
    rejected: int = 0
    failed: int = 0
    """How often its edge was dropped in the very round in which it should have come back."""
    inbox: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Messages that cannot be opened yet: an earlier one is missing."""
    chain: dict[int, Heard] = dataclasses.field(default_factory=dict)
    """Messages that were opened, by round, but not used yet."""
    digests: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Of the messages of the last rounds, to tell one that was said again from another one."""

    FACTS = ("round", "active", "entry", "rejected", "failed")

    @property
    def last(self) -> int:
        """The round of the last message that was opened."""
        return max(self.chain, default=self.round)

    def opens(self, active: bool, entry: int) -> View:
        """The same neighbour, counting or not, with nothing heard."""
        return dataclasses.replace(self, active=active, entry=entry, inbox={}, chain={})


class Peer:
    """One peer. `data` is a federation of one; `folder` is this peer's own."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        number: int,
        neighbours: Collection[Neighbour],
        data: Federation | Worker,
        folder: Path,
        *,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not plan.peers:
            raise InvalidInput(
                f"the method is {plan.method.name!r}, which needs a hub; peers run dfedu or"
                " graph-proj."
            )
        self.plan, self.name, self.number, self.folder, self.say = plan, name, number, folder, say
        self.neighbours = {n.name: n for n in neighbours}
        self._check_neighbours(neighbours)
        self.worker = data if isinstance(data, Worker) else Worker(plan, number, data)
        self.method, self.channel = self.worker.method, plan.channel
        self.stream = link.uplink(plan.channel, "graph")
        self.goes_on = plan.rules.on_missing == "go-on"
        self.staleness = plan.rules.staleness if self.goes_on else 0
        self.kept = KEPT_ROUNDS + self.staleness
        self.t = 0
        self.entry = -1
        """The round to which this peer jumped last."""
        self.begun = False
        self.finished = False
        self.outbox: dict[int, bytes] = {}
        self.told: list[str] = []
        """Who is told the message of this round."""
        self.gradients = 0
        self.ledger = Ledger(plan.size)
        self.scores: dict[str, float] = {}
        self._looked = 0.0
        with self.worker.precision():
            self.like = self.worker.message_like()
            self.largest = lines.largest(self.stream, self.channel, self.like)
            self.row: Row = self.worker.row
            self.message = self.method.message(self.row.memory)
            self.views = {name: self._view() for name in self.neighbours}
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidInput(
                    f"the folder {str(folder)!r} cannot be made: {error.strerror or error}."
                ) from None
            if (folder / FILE).is_file():
                self._restore()

    def _check_neighbours(self, neighbours: Collection[Neighbour]) -> None:
        if len(self.neighbours) != len(neighbours) or self.name in self.neighbours:
            raise InvalidInput("a neighbour is named twice, or is this peer itself.")
        numbers = [self.number, *(n.number for n in neighbours)]
        for n in neighbours:
            if not 0 <= n.number < self.plan.size or numbers.count(n.number) > 1:
                raise InvalidInput(
                    f"neighbour {n.name!r} has the number {n.number}, but must have one of its own"
                    f" from 0 to {self.plan.size - 1}."
                )
            if not 0 < n.weight < float("inf"):
                raise InvalidInput(
                    f"neighbour {n.name!r} has the weight {n.weight}, but it must be a number > 0."
                )

    def _view(self) -> View:
        return View(
            () if self.row.up == () else self.worker.row.up.public,
            self.method.message(self.worker.row.memory),
        )

    # -- a round -----------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.t >= self.plan.training.rounds

    def begin(self) -> tuple[int, bytes]:
        """The local work of this round (once) and what to tell the neighbours in `told`: (round,
        bytes).
        """
        assert not self.done
        if not self.begun:
            with self.worker.precision():
                self._begin()
        return self.t, self.outbox[self.t]

    def _begin(self) -> None:
        t = self.t
        scores = self._scores() if t % self.plan.training.eval_every == 0 else self.scores
        step = self.worker.work((), self.row.memory, t)
        up, message = self.row.up, step.message
        entering = self.entry == t or any(view.entry == t for view in self.views.values())
        if up == ():
            wire = Identity().encode(message)
        elif entering:
            wire, up, message = lines.send_whole(self.stream, self.channel, up, message, None)
        else:
            sender = link.Sender(self.stream, self.channel, message, up)
            receiver = link.Receiver(self.stream, self.channel, message, up.public)
            key = per_client(stream(self.worker.seed, Role.UPLINK), t, self.number)
            wire = sender.send(message, None, key, t)
            message, up = receiver.receive(wire, None, key, t), sender.link
        outbox = {r: w for r, w in self.outbox.items() if r > t - self.kept} | {t: wire}
        told = [name for name in self.views if self.awaited(name)]
        changes = {
            "row": Row(step.memory, up),
            "message": message,
            "outbox": outbox,
            "begun": True,
            "told": told,
        }
        self._keep(**changes, gradients=int(step.gradients), scores=scores)

    def hear(self, name: str, t: int, wire: bytes) -> bool:
        """A neighbour's message of round t; True when it is new. Raises Rejected, and then nothing
        has changed but the count of rejections.
        """
        if name not in self.views:
            raise Rejected(f"{name!r} is not a neighbour.")
        try:
            with self.worker.precision():
                return self._hear(name, t, wire)
        except (InvalidInput, Rejected, link.OutOfStep) as error:
            self.reject(name)
            raise messages.refuse(error) from None

    def reject(self, name: str) -> None:
        """Count a message of a neighbour that cannot be used."""
        if name in self.views:
            self.views[name] = dataclasses.replace(
                self.views[name], rejected=self.views[name].rejected + 1
            )

    def _hear(self, name: str, t: int, wire: bytes) -> bool:
        view = self.views[name]
        if not 0 <= t < self.plan.training.rounds:
            raise Rejected(
                f"the message is of round {t}, but the plan has {self.plan.training.rounds}."
            )
        if len(wire) > self.largest:
            raise Rejected(
                f"the message has {len(wire)} bytes, but must have at most {self.largest}."
            )
        digest = hashlib.sha256(wire).digest()
        if t in view.digests:
            if view.digests[t] != digest:
                raise Rejected(
                    f"two different messages came for round {t}, and the first one counts; do two"
                    " processes have this identity?"
                )
            return False
        if (
            t > self.t + 1
            or t <= view.round
            or t in view.inbox
            or t in view.chain
            or (not self.goes_on and t < self.t)
        ):
            return False
        if not view.active and not 0 <= view.entry <= t:
            return False
        self.views[name] = dataclasses.replace(view, inbox={**view.inbox, t: wire})
        self._open(name)
        return True

    def _open(self, name: str) -> None:
        """Open what can be opened of what a neighbour sent.

        What turns out to be bad is thrown away, and may be sent again.
        """
        for t, wire in sorted(self.views[name].inbox.items()):
            view = self.views[name]
            if not self._opens(view, t, wire):
                continue
            inbox = {r: w for r, w in view.inbox.items() if r != t}
            self.views[name] = dataclasses.replace(view, inbox=inbox)
            chain = {**view.chain, t: self._decode(name, view, t, wire)}
            digests = {**view.digests, t: hashlib.sha256(wire).digest()}
            self.views[name] = dataclasses.replace(view, inbox=inbox, chain=chain, digests=digests)

    def _opens(self, view: View, t: int, wire: bytes) -> bool:
        """Whether a message can be understood: over public copies only the one after the last, or a
        whole one when its turn has come.
        """
        before = view.entry - 1 if not view.active and not view.chain else view.last
        return self.stream.passes or t == before + 1 or (_whole(wire) and before < t <= self.t)

    def _decode(self, name: str, view: View, t: int, wire: bytes) -> Heard:
        if self.stream.passes:
            message, public = Identity().decode(wire, self.like), ()
        else:
            if not view.active and t == view.entry and not _whole(wire):
                raise Rejected(
                    f"the message of round {t}, in which its edge counts again, must be a whole"
                    " one."
                )
            before = view.chain[view.last].public if view.chain else view.public
            receiver = link.Receiver(self.stream, self.channel, lines.zeros(self.like), before)
            key = per_client(stream(self.worker.seed, Role.UPLINK), t, self.neighbours[name].number)
            message = receiver.receive(wire, None, key, t)
            public = receiver.public
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(message)):
            raise Rejected("the message holds NaN or infinity.")
        return Heard(message, public, len(wire))

    def awaited(self, name: str) -> bool:
        """Whether a neighbour counts in this round."""
        view = self.views[name]
        return view.active or 0 <= view.entry <= self.t

    @property
    def missing(self) -> list[str]:
        """The neighbours that count and whose message of this round is not there."""
        return [
            name
            for name in self.views
            if self.awaited(name) and self.t not in self.views[name].chain
        ]

    def wants(self, name: str) -> int:
        """The round of the first message of a neighbour that is of use here."""
        view = self.views[name]
        if not self.stream.passes:
            return (
                view.entry
                if not view.active and view.entry >= 0 and not view.chain
                else view.last + 1
            )
        return next(r for r in itertools.count(max(self.t, view.entry)) if r not in view.chain)

    def finish(self, silent: Collection[str] = ()) -> None:
        """Mix with the neighbours' messages; those of `silent` count with their last one, or no
        more.
        """
        assert self.begun
        assert set(self.missing) <= set(silent), self.missing
        with self.worker.precision():
            self._finish()

    def _finish(self) -> None:
        t, dtype = self.t, self.worker.data.x.dtype
        near, views, heard, dropped = [], {}, 0, []
        for name, view in self.views.items():
            active = self.awaited(name)
            public, message, round_ = view.public, view.message, view.round
            if usable := [r for r in view.chain if r <= t]:
                message, public, _ = view.chain[max(usable)]
                round_, heard = max(usable), heard + sum(view.chain[r].size for r in usable)
            failed = 0 if round_ == t else view.failed
            if active and t - round_ > self.staleness:
                failed += not view.active  # it was to come back in this round
                dropped.append(name)
                active = False
            if active:
                near.append((message, self.neighbours[name].weight))
            views[name] = dataclasses.replace(
                view,
                public=public,
                message=message,
                round=round_,
                active=active,
                entry=-1 if view.entry <= t else view.entry,
                failed=failed,
                inbox=(
                    {r: w for r, w in view.inbox.items() if r > round_}
                    if name not in dropped
                    else {}
                ),
                chain={r: h for r, h in view.chain.items() if r > t} if name not in dropped else {},
                digests={r: d for r, d in view.digests.items() if r > t - self.kept},
            )
        near = near or [(self.message, 0.0)]
        weights = np.array([w for _, w in near], dtype)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(m for m, _ in near))
        own = (
            message_of(self.method, self.row.memory)
            if compares_itself(self.method, self.plan.channel)
            else self.message
        )
        memory = absorbed(
            self.method, self.row.memory, pulled(self.method, own, stacked, weights), t
        )
        if not bool(all_finite(memory)):
            raise Diverged(self.method.title, t + 1, [self.number])
        bill = Ledger(
            self.ledger.clients,
            list(self.ledger.parts),
            self.ledger.up,
            self.ledger.down,
            self.ledger.gradients,
        )
        bill.add(
            t, np.array([self.number]), len(self.outbox[t]) * len(self.told), heard, self.gradients
        )
        self._keep(
            row=Row(memory, self.row.up), views=views, begun=False, told=[], t=t + 1, ledger=bill
        )
        for name in self.views:
            try:
                self._open(name)  # a whole message may have waited for its turn
            except (InvalidInput, Rejected, link.OutOfStep) as error:
                self.reject(name)
                self.say(f"round {t + 1}: a message of {name} is rejected: {error}")
        for name in dropped:
            self.say(
                f"round {t}: nothing of {name} since round {views[name].round}; its edge is dropped"
                " until it comes back."
            )

    def end(self) -> None:
        """After the last round: score and write the models down."""
        with self.worker.precision():
            self._keep(finished=True, scores=self._scores())
        self.export(self.folder / "models")
        self.look(now=True)

    # -- coming back -------------------------------------------------------------------------------

    def position(self, name: str) -> dict[str, Any]:
        """What this neighbour, and no other, may know before it talks to this peer."""
        view = self.views[name]
        return {
            "plan": self.plan.fingerprint,
            "number": self.number,
            "weight": self.neighbours[name].weight,
            "round": self.t,
            "oldest": min(self.outbox, default=self.t),
            "counts": self.awaited(name),
            "entry": view.entry if view.entry > self.t else -1,
        }

    def check_position(self, name: str, position: dict[str, Any]) -> None:
        """Refuse a neighbour that has another plan, number or weight than this peer was told."""
        mine = self.neighbours[name]
        if position.get("plan") != self.plan.fingerprint:
            raise Rejected(f"{name} has another plan; all must have the same.")
        if position.get("number") != mine.number:
            raise Rejected(
                f"{name} says its number is {position.get('number')!r}, but here it is"
                f" {mine.number}."
            )
        if position.get("weight") != mine.weight:
            raise Rejected(
                f"{name} gives the edge the weight {position.get('weight')!r}, but here it is"
                f" {mine.weight}; an edge must have one weight."
            )

    def earliest(self, name: str) -> int:
        """The first round from which a neighbour may count again: later each time that it was to
        come back and did not.
        """
        view = self.views[name]
        return max(self.t + 2 + (2 ** min(view.failed, 6) if view.failed else 0), view.entry)

    def agree(self, name: str, entry: int) -> int:
        """A neighbour asks to count again from round `entry` on: the round that is agreed on, later
        if both asked at once. Raises Rejected when that round has begun here, or is too far off.
        """
        view = self.views[name]
        if (
            entry <= self.t
            or entry > self.t + FARTHEST
            or (view.failed and entry < self.earliest(name))
        ):
            raise Rejected(
                f"{name} asks to count again from round {entry} on, but here round {self.t} has"
                " begun."
            )
        settled = max(entry, view.entry)
        self.expect(name, settled)
        return settled

    def expect(self, name: str, entry: int) -> None:
        """This edge counts from round `entry` on, which has not begun here; −1 for not at all."""
        assert entry == -1 or entry > self.t
        view = self.views[name]
        if (view.active, view.entry) != (False, entry):
            self._keep(views=self.views | {name: view.opens(False, entry)})

    def jump(
        self, entry: int, agreed: Collection[str], why: str = "too far behind the others"
    ) -> None:
        """Go on from round `entry`, without the rounds in between, with the neighbours that agreed
        to it.
        """
        if entry <= self.t:
            raise InvalidInput(f"cannot jump from round {self.t} to round {entry}.")
        views = {
            name: view.opens(
                False, entry if name in agreed else view.entry if view.entry > entry else -1
            )
            for name, view in self.views.items()
        }
        was = self.t
        self._keep(views=views, t=entry, entry=entry, begun=False, told=[], outbox={})
        self.say(
            f"round {was}: {why}; going on with {', '.join(sorted(agreed))} from round {entry}."
        )

    # -- folder ------------------------------------------------------------------------------------

    KEPT = (
        "row",
        "message",
        "outbox",
        "views",
        "begun",
        "told",
        "t",
        "entry",
        "finished",
        "gradients",
        "ledger",
        "scores",
    )

    def _keep(self, **changes: Any) -> None:
        """On disk first: what cannot be written did not happen."""
        now = {key: changes.get(key, getattr(self, key)) for key in self.KEPT}
        trees: dict[str, Any] = {"row": now["row"], "message": now["message"]}
        blobs = {f"out{t}": wire for t, wire in now["outbox"].items()}
        for name, view in now["views"].items():
            trees[f"public/{name}"] = view.public
            if self.goes_on:  # with "wait" an old message never counts again
                trees[f"message/{name}"] = view.message
        facts = {
            key: now[key]
            for key in ("begun", "told", "t", "entry", "finished", "gradients", "scores")
        }
        facts |= {"plan": self.plan.fingerprint, "name": self.name}
        facts["views"] = {
            name: {key: getattr(view, key) for key in View.FACTS}
            for name, view in now["views"].items()
        }
        blobs["ledger"] = now["ledger"].rows().astype("<i8").tobytes()
        Bundle(trees, blobs, facts).save(self.folder / FILE)
        for key, value in changes.items():
            setattr(self, key, value)
        self.look()

    def look(self, *, now: bool = False) -> None:
        """Write what is for looking at; nothing is read back from it."""
        if now or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            write_table(
                self.folder / "ledger.parquet",
                dict(zip(COLUMNS, self.ledger.rows().T, strict=True)),
            )
            write_json(self.folder / "status.json", self.status())

    def _restore(self) -> None:
        like: dict[str, Any] = {"row": self.row, "message": self.message}
        for name, view in self.views.items():
            like |= {f"public/{name}": view.public, f"message/{name}": view.message}
        found = Bundle.load(self.folder / FILE, like)
        facts = found.facts
        if facts["plan"] != self.plan.fingerprint or facts["name"] != self.name:
            raise InvalidInput(
                f"{str(self.folder / FILE)!r} belongs to another plan or peer; give this one a"
                " folder of its own."
            )
        if set(facts["views"]) != set(self.views):
            raise InvalidInput(
                "the neighbours were changed since the run began; undo that, or choose another"
                " folder."
            )
        self.row, self.message = found.trees["row"], found.trees["message"]
        for key in ("begun", "told", "t", "entry", "finished", "gradients", "scores"):
            setattr(self, key, facts[key])
        for name in self.views:
            kept = (
                found.trees.get(f"{what}/{name}", like[f"{what}/{name}"])
                for what in ("public", "message")
            )
            self.views[name] = View(*kept, **facts["views"][name])
        self.outbox = {
            int(key[3:]): wire for key, wire in found.blobs.items() if key.startswith("out")
        }
        for row in np.frombuffer(found.blobs["ledger"], "<i8").reshape(-1, len(COLUMNS)):
            self.ledger.add(int(row[0]), *row[1:, None])

    # -- looking -----------------------------------------------------------------------------------

    def models(self) -> dict[str, Vector]:
        """This peer's models as they are now, by view, as numpy arrays."""
        with self.worker.precision():
            return {
                view: v.map(np.asarray)
                for view, v in self.worker.models((), self.row.memory, self.t).items()
            }

    def _scores(self) -> dict[str, float]:
        return (
            self.worker.scores(self.worker.models((), self.row.memory, self.t))
            if self.worker.held
            else {}
        )

    def export(self, folder: Path) -> list[Path]:
        """Write the models as safetensors files, one per view."""
        facts = {
            "client": str(self.number),
            "method": self.method.name,
            "round": str(self.t),
            "model": self.plan.model.name,
        }
        return write_models(self.models(), facts, folder)

    def status(self) -> dict[str, Any]:
        """What `coterie status` shows."""
        return {
            "name": self.plan.name,
            "peer": self.name,
            "method": self.method.name,
            "round": self.t,
            "rounds": self.plan.training.rounds,
            "finished": self.finished,
            "up": self.ledger.up,
            "down": self.ledger.down,
            "scores": self.scores,
            "neighbours": [
                {
                    "name": name,
                    "active": view.active,
                    "round": view.last,
                    "entry": view.entry,
                    "rejected": view.rejected,
                }
                for name, view in self.views.items()
            ],
            "written": time.time(),
        }


def _whole(wire: bytes) -> bool:
    """Whether a message over public copies is a whole one."""
    return len(wire) >= link.HEADER and bool(wire[1] & 0x80)
