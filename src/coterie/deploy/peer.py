"""A peer: a client without a hub, who knows only itself and its neighbours. Whatever carries the messages (Zenoh, a test) drives it:

    t, wire = peer.begin()             # the local work of a round, and what to tell every neighbour
    peer.hear(name, t, wire)           # for whatever arrives, in any order, however often; raises Rejected
    peer.finish(silent)                # mix with what is there; on to the next round

What a peer keeps is in one file of its own folder, written after the local work and after the mixing. A restarted peer says again what it said
last, and neighbours keep what they said in the last two rounds: with "wait" a crash anywhere changes nothing.

With "go-on" a neighbour that is silent counts with its last message for at most `staleness` rounds; then its edge is dropped. Either side asks to
have it back from an agreed round on that neither has begun (`agree`); in that round both send whole messages. A peer that fell too far behind
jumps to the agreed round; it does not make up for the rounds in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from coterie.channel import link
from coterie.channel.codec import Identity
from coterie.channel.ledger import COLUMNS, Ledger
from coterie.data.federation import Federation
from coterie.deploy import lines, messages
from coterie.deploy.messages import Rejected
from coterie.deploy.plan import Plan
from coterie.deploy.state import Bundle
from coterie.deploy.worker import Worker, absorbed, pulled
from coterie.engine.files import write_json, write_table, writing
from coterie.engine.rounds import Row
from coterie.engine.run import tensors
from coterie.errors import Diverged, InvalidInput
from coterie.randomness import Role, per_client, stream
from coterie.vector import Vector, all_finite

FILE = "peer.safetensors"
KEPT_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A neighbour as the config names it."""

    name: str
    number: int
    weight: float


@dataclasses.dataclass
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
    inbox: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Messages that came for this round and the next."""

    FACTS = ("round", "active", "entry", "rejected")


class Peer:
    """One peer. `data` is a federation of one; `folder` is this peer's own."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        number: int,
        neighbours: Collection[Neighbour],
        data: Federation,
        folder: Path,
        *,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not plan.peers:
            raise InvalidInput(f"the method is {plan.method.name!r}, which needs a hub; peers run dfedu or graph-proj.")
        self.plan, self.name, self.number, self.folder, self.say = plan, name, number, folder, say
        self.neighbours = {n.name: n for n in neighbours}
        self._check_neighbours(neighbours)
        self.worker = Worker(plan, number, data)
        self.method, self.channel = self.worker.method, plan.channel
        self.stream = link.uplink(plan.channel, "graph")
        self.t = 0
        self.entry = -1
        """The round to which this peer jumped last."""
        self.begun = False
        self.finished = False
        self.outbox: dict[int, bytes] = {}
        self.ledger = Ledger(plan.size)
        self.scores: dict[str, float] = {}
        with self.worker.precision():
            self.like = self.worker.message_like()
            self.largest = lines.largest(self.stream, self.channel, self.like)
            self.row: Row = self.worker.row
            self.message = self.method.message(self.row.memory)
            self.views = {name: self._view() for name in self.neighbours}
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / FILE).is_file():
                self._restore()

    def _check_neighbours(self, neighbours: Collection[Neighbour]) -> None:
        if len(self.neighbours) != len(neighbours) or self.name in self.neighbours:
            raise InvalidInput("a neighbour is named twice, or is this peer itself.")
        numbers = [self.number, *(n.number for n in neighbours)]
        for n in neighbours:
            if not 0 <= n.number < self.plan.size or numbers.count(n.number) > 1:
                raise InvalidInput(f"neighbour {n.name!r} has the number {n.number}, but must have one of its own from 0 to {self.plan.size - 1}.")
            if not n.weight > 0:
                raise InvalidInput(f"neighbour {n.name!r} has the weight {n.weight}, but it must be a number > 0.")

    def _view(self) -> View:
        return View(() if self.row.up == () else self.worker.row.up.public, self.method.message(self.worker.row.memory))

    # -- a round ----------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.t >= self.plan.training.rounds

    def begin(self) -> tuple[int, bytes]:
        """The local work of this round (once) and what to tell the neighbours: (round, bytes)."""
        assert not self.done
        if not self.begun:
            with self.worker.precision():
                self._begin()
        return self.t, self.outbox[self.t]

    def _begin(self) -> None:
        t = self.t
        if t % self.plan.training.eval_every == 0:
            self.scores = self._scores()
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
        outbox = {r: w for r, w in self.outbox.items() if r > t - KEPT_ROUNDS} | {t: wire}
        row = Row(step.memory, up)
        self._save(row=row, message=message, outbox=outbox, begun=True)
        self.row, self.message, self.outbox, self.begun = row, message, outbox, True
        self.gradients = int(step.gradients)

    def hear(self, name: str, t: int, wire: bytes) -> bool:
        """A neighbour's message of round t; True when it is new. Raises Rejected, and then nothing has changed but the count of rejections."""
        if name not in self.views:
            raise Rejected(f"{name!r} is not a neighbour.")
        view = self.views[name]
        try:
            if len(wire) > self.largest:
                raise Rejected(f"the message has {len(wire)} bytes, but must have at most {self.largest}.")
            if not 0 <= t < self.plan.training.rounds:
                raise Rejected(f"the message is of round {t}, but the plan has {self.plan.training.rounds}.")
            if t < self.t:
                return False  # said again
            if t in view.inbox:
                if view.inbox[t] != wire:
                    raise Rejected(f"two different messages came for round {t}; the first one counts.")
                return False
            if t > self.t + 1:
                return False  # too far ahead to be of use: see `behind`
            if self.stream.passes:
                with self.worker.precision():
                    if not bool(all_finite(Identity().decode(wire, self.like))):
                        raise Rejected("the message holds NaN or infinity.")
        except InvalidInput as error:
            view.rejected += 1
            raise messages.refuse(error) from None
        except Rejected:
            view.rejected += 1
            raise
        view.inbox[t] = wire
        return True

    def awaited(self, name: str) -> bool:
        """Whether a neighbour counts in this round."""
        view = self.views[name]
        return view.active or 0 <= view.entry <= self.t

    @property
    def missing(self) -> list[str]:
        """The neighbours that count and whose message of this round is not there."""
        return [name for name in self.views if self.awaited(name) and self.t not in self.views[name].inbox]

    def finish(self, silent: Collection[str] = ()) -> None:
        """Mix with the neighbours' messages; those of `silent` count with their last one, or no more."""
        assert self.begun
        assert set(self.missing) <= set(silent), self.missing
        with self.worker.precision():
            self._finish()

    def _finish(self) -> None:
        t, dtype = self.t, self.worker.data.x.dtype
        near, views, heard = [], {}, 0
        for name, view in self.views.items():
            active, entry, public, message, round_, rejected = self.awaited(name), view.entry, view.public, view.message, view.round, view.rejected
            if active and t in view.inbox:
                try:
                    message, public = self._decode(name, view, view.inbox[t])
                    round_, heard = t, heard + len(view.inbox[t])
                except (InvalidInput, Rejected, link.OutOfStep) as error:
                    rejected += 1
                    self.say(f"round {t}: the message of {name} is rejected: {error}")
            if active and t - round_ > (self.plan.rules.staleness if self.plan.rules.on_missing == "go-on" else 0):
                self.say(f"round {t}: {name} has been silent for {t - round_} rounds; its edge is dropped until it comes back.")
                active, entry = False, -1
            if active:
                near.append((message, self.neighbours[name].weight))
            inbox = {r: w for r, w in view.inbox.items() if r > t}
            views[name] = View(public, message, round_, active, -1 if entry <= t else entry, rejected, inbox)
        near = near or [(self.message, 0.0)]
        weights = jnp.array([w for _, w in near], dtype)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(m for m, _ in near))
        memory = absorbed(self.method, self.row.memory, pulled(self.method, self.message, stacked, weights), t)
        if not bool(all_finite(memory)):
            raise Diverged(self.method.title, t + 1, [self.number])
        row = Row(memory, self.row.up)
        told = sum(self.awaited(name) for name in self.views)
        self.ledger.add(t, self.number, len(self.outbox[t]) * told, heard, getattr(self, "gradients", 0))
        self._save(row=row, views=views, begun=False, t=t + 1)
        self.row, self.views, self.begun, self.t = row, views, False, t + 1

    def _decode(self, name: str, view: View, wire: bytes) -> tuple[Any, Any]:
        if self.stream.passes:
            return jax.tree.map(jnp.asarray, Identity().decode(wire, self.like)), ()
        receiver = link.Receiver(self.stream, self.channel, lines.zeros(self.like), view.public)
        key = per_client(stream(self.worker.seed, Role.UPLINK), self.t, self.neighbours[name].number)
        message = receiver.receive(wire, None, key, self.t)
        if not bool(all_finite(message)):
            raise Rejected("the message holds NaN or infinity.")
        return message, receiver.public

    def end(self) -> None:
        """After the last round: score and write the models down."""
        with self.worker.precision():
            self.scores = self._scores()
        self.finished = True
        self._save()
        self.export(self.folder / "models")

    # -- coming back ------------------------------------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        """What a neighbour may know before it talks to this peer."""
        return {
            "plan": self.plan.fingerprint,
            "number": self.number,
            "round": self.t,
            "oldest": min(self.outbox, default=self.t),
            "weights": {n.name: n.weight for n in self.neighbours.values()},
            "active": [name for name in self.views if self.awaited(name)],
        }

    def check_position(self, name: str, position: dict[str, Any]) -> None:
        """Refuse a neighbour that has another plan, number or weight than this peer was told."""
        mine = self.neighbours[name]
        if position.get("plan") != self.plan.fingerprint:
            raise Rejected(f"{name} has another plan; all must have the same.")
        if position.get("number") != mine.number:
            raise Rejected(f"{name} says its number is {position.get('number')!r}, but here it is {mine.number}.")
        theirs = position.get("weights")
        theirs = theirs.get(self.name) if isinstance(theirs, dict) else None
        if theirs != mine.weight:
            raise Rejected(f"{name} gives the edge the weight {theirs!r}, but here it is {mine.weight}; an edge must have one weight.")

    def agree(self, name: str, entry: int) -> bool:
        """A neighbour asks to count again from round `entry` on: True when that round has not begun here."""
        if name not in self.views or entry <= self.t or entry > self.t + 1000:
            return False
        view = self.views[name]
        view.active, view.entry, view.inbox = False, entry, {}
        self._save()
        return True

    def expect(self, name: str, entry: int) -> None:
        """A neighbour has agreed that this edge counts from round `entry` on."""
        view = self.views[name]
        view.active, view.entry, view.inbox = False, entry, {}
        self._save()

    def jump(self, entry: int, agreed: Collection[str]) -> None:
        """Go on from round `entry`, without the rounds in between, with the neighbours that agreed to it."""
        if entry <= self.t:
            raise InvalidInput(f"cannot jump from round {self.t} to round {entry}.")
        for name, view in self.views.items():
            view.active, view.entry, view.inbox = False, entry if name in agreed else -1, {}
        self.say(f"round {self.t}: too far behind the others; going on with them from round {entry}.")
        self.t, self.entry, self.begun = entry, entry, False
        self._save()

    # -- folder -----------------------------------------------------------------------------------------------------------

    def _save(self, **changes: Any) -> None:
        """Everything with these changes, atomically; what cannot be written did not happen."""
        now = {key: changes.get(key, getattr(self, key)) for key in ("row", "message", "outbox", "views", "begun", "t", "entry", "finished")}
        trees: dict[str, Any] = {"row": now["row"], "message": now["message"]}
        blobs = {f"out{t}": wire for t, wire in now["outbox"].items()}
        for name, view in now["views"].items():
            trees |= {f"public/{name}": view.public, f"message/{name}": view.message}
        facts = {key: now[key] for key in ("begun", "t", "entry", "finished")}
        facts |= {"plan": self.plan.fingerprint, "name": self.name, "gradients": getattr(self, "gradients", 0), "scores": self.scores}
        facts["views"] = {name: {key: getattr(view, key) for key in View.FACTS} for name, view in now["views"].items()}
        rows = self.ledger.rows()
        blobs["ledger"] = rows.astype("<i8").tobytes()
        Bundle(trees, blobs, facts).save(self.folder / FILE)
        if "t" in changes or now["finished"]:
            write_table(self.folder / "ledger.parquet", dict(zip(COLUMNS, rows.T, strict=True)))
            write_json(self.folder / "status.json", self.status(now["t"], now["views"]))

    def _restore(self) -> None:
        like: dict[str, Any] = {"row": self.row, "message": self.message}
        for name, view in self.views.items():
            like |= {f"public/{name}": view.public, f"message/{name}": view.message}
        found = Bundle.load(self.folder / FILE, like)
        facts = found.facts
        if facts["plan"] != self.plan.fingerprint or facts["name"] != self.name:
            raise InvalidInput(f"{str(self.folder / FILE)!r} belongs to another plan or peer; give this one a folder of its own.")
        if set(facts["views"]) != set(self.views):
            raise InvalidInput("the neighbours were changed since the run began; undo that, or choose another folder.")
        self.row, self.message = found.trees["row"], found.trees["message"]
        self.begun, self.t, self.entry, self.finished = (facts[key] for key in ("begun", "t", "entry", "finished"))
        self.gradients, self.scores = facts["gradients"], facts["scores"]
        for name, view in self.views.items():
            view.public, view.message = found.trees.get(f"public/{name}", ()), found.trees[f"message/{name}"]
            for key, value in facts["views"][name].items():
                setattr(view, key, value)
        self.outbox = {int(key[3:]): wire for key, wire in found.blobs.items() if key.startswith("out")}
        rows = np.frombuffer(found.blobs["ledger"], "<i8").reshape(-1, len(COLUMNS))
        for row in rows:
            self.ledger.add(int(row[0]), *row[1:])

    # -- looking ----------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Vector]:
        """This peer's models as they are now, by view, as numpy arrays."""
        with self.worker.precision():
            return {view: v.map(np.asarray) for view, v in self.worker.models((), self.row.memory, self.t).items()}

    def _scores(self) -> dict[str, float]:
        return self.worker.scores(self.worker.models((), self.row.memory, self.t)) if self.worker.held else {}

    def export(self, folder: Path) -> list[Path]:
        """Write the models as safetensors files, one per view."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for view, model in self.models().items():
            path = folder / f"{view}.safetensors"
            facts = {"client": str(self.number), "view": view, "method": self.method.name, "round": str(self.t), "model": self.plan.model.name}
            with writing(path) as temporary:
                save_file(tensors(model), temporary, metadata=facts)
            paths.append(path)
        return paths

    def status(self, t: int | None = None, views: dict[str, View] | None = None) -> dict[str, Any]:
        """What `coterie status` shows."""
        views = self.views if views is None else views
        return {
            "name": self.plan.name,
            "peer": self.name,
            "method": self.method.name,
            "round": self.t if t is None else t,
            "rounds": self.plan.training.rounds,
            "finished": self.finished,
            "up": self.ledger.up,
            "down": self.ledger.down,
            "scores": self.scores,
            "neighbours": [
                {"name": name, "active": view.active, "round": view.round, "entry": view.entry, "rejected": view.rejected}
                for name, view in views.items()
            ],
        }
