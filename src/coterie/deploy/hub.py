"""The hub of a real federation: makes requests, takes replies, merges.

Whatever carries them (Flower, Zenoh, a test) drives it:

    for k, request in hub.requests().items(): …send…
    hub.take(k, reply)        # for every reply; raises Rejected on what no honest client sends
    hub.close()               # merges what came; on to the next round

The hub keeps the method's shared state, its ends of the clients' links and the byte bill; with a
hub between the clients of a graph also their last messages. It never sees data, nor anything else a
client keeps. It is saved after every round; a hub that was killed makes the same requests again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import link
from coterie.channel.codec import Identity
from coterie.core.errors import Diverged, InvalidInput
from coterie.core.files import make_folder, write_json, write_table
from coterie.core.ledger import COLUMNS, Ledger
from coterie.core.randomness import Role, per_client, stream
from coterie.core.vector import all_finite
from coterie.deploy import lines, messages
from coterie.deploy.messages import Rejected, Reply, Request
from coterie.deploy.plan import Plan
from coterie.deploy.state import Bundle
from coterie.deploy.worker import Worker, merged, moved, pulled, shifted
from coterie.engine.rounds import Hub as Centre
from coterie.engine.rounds import round_cohort
from coterie.methods.star import Cohort

FILE = "hub.safetensors"


@dataclasses.dataclass
class Line:
    """What the hub keeps for one client."""

    up: Any = ()
    """Its public end of what the client sends."""
    down: Any = ()
    """Graph: its sending end of the client's pulls."""
    message: Any = ()
    """Graph: the client's last message."""
    pull: tuple[int, bytes, float] | None = None
    """Graph: round, bytes and scale of a pull that the client has not confirmed yet."""
    seen: int = -1
    """The round of the last message that was accepted."""
    heard: int = -1
    """Star over public copies: the round of the last broadcast that the client confirmed."""
    lost: bool = False
    """The client must get a whole copy."""
    samples: int = 0
    at: float = 0.0
    """When it was last heard of (seconds since the epoch)."""
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    rejected: int = 0

    FACTS = ("seen", "heard", "lost", "samples", "at", "scores", "rejected")


class Hub:
    """The hub's side of a plan, in a folder of its own.

    A folder that holds an unfinished run is resumed.
    """

    def __init__(self, plan: Plan, folder: Path, *, say: Callable[[str], None] = print) -> None:
        if plan.peers:
            raise InvalidInput(f"{plan.method.name} has no hub; run it with `coterie peer`.")
        self.plan, self.folder, self.say = plan, folder, say
        self.worker = Worker(plan, 0, plan.problem.sample())  # for shapes only: a hub has no data
        self.method, self.channel = self.worker.method, plan.channel
        self.star = self.method.exchange == "star"
        self.up, self.down = (
            link.uplink(plan.channel, self.method.exchange),
            link.downlink(plan.channel, self.method.exchange),
        )
        self.t = 0
        self.ledger = Ledger(plan.size)
        with self.worker.precision():
            self.like = self.worker.message_like()
            self.largest = lines.largest(self.up, self.channel, self.like)
            self.like_zeros = lines.zeros(self.like)
            self.centre: Centre = self.worker.hub
            self.lines = [self._line() for _ in range(plan.size)]
        self.said: list[tuple[int, bytes]] = []
        """Star over public copies: the broadcasts that some client may still need, oldest first."""
        self._open()
        self.finished = False
        make_folder(folder, force=(folder / "plan.json").is_file())
        self._check_plan()
        if (folder / FILE).is_file():
            with self.worker.precision():
                self._restore()

    # -- a round -----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Forget what belongs to the round that was just closed."""
        self.spoken: tuple[bytes, Any, Any] | None = None
        self.arrived: dict[int, tuple[Any, Any]] = {}
        self.replies: dict[int, Reply] = {}
        self.billed: dict[int, int] = {}

    def _line(self) -> Line:
        row = self.worker.row
        message = () if self.star else self.worker.method.message(row.memory)
        return Line(
            () if row.up == () else row.up.public, row.down if not self.star else (), message
        )

    @property
    def done(self) -> bool:
        """All rounds are closed; what is left is to tell the clients (`farewells`)."""
        return self.t >= self.plan.training.rounds

    @property
    def cohort(self) -> list[int]:
        """The clients whose messages count in this round."""
        return [
            int(k) for k in np.asarray(round_cohort(self.worker.spec, self.worker.seed, self.t))
        ]

    @property
    def asked(self) -> list[int]:
        """The clients that work in this round."""
        return list(range(self.plan.size)) if self.method.trains_all else self.cohort

    def requests(self) -> dict[int, Request]:
        """What to ask of whom in this round, of those that have not answered yet.

        The same bytes however often it is called.
        """
        assert not self.done
        cohort = set(self.cohort)
        return {
            k: self.request(k, "work", k in cohort) for k in self.asked if k not in self.replies
        }

    def farewells(self) -> dict[int, Request]:
        """After the last round: the last word of the hub, for every client that has not confirmed
        it.
        """
        assert self.done
        return {
            k: self.request(k, "finish", False)
            for k in range(self.plan.size)
            if k not in self.replies
        }

    def request(self, k: int, kind: str, send: bool) -> Request:
        with self.worker.precision():
            line = self.lines[k]
            basic = Request(self.plan.fingerprint, kind, self.t, send, seen=line.seen)
            if self.star:
                first, whole, frames = self._broadcast(k)
                return dataclasses.replace(basic, first=first, whole=whole, frames=frames)
            if line.pull is None:
                return basic
            t, wire, scale = line.pull
            return dataclasses.replace(
                basic, first=t, scale=None if self.down.passes else scale, frames=(wire,)
            )

    def _broadcast(self, k: int) -> tuple[int, bool, tuple[bytes, ...]]:
        """Star: (round of the first frame, whether it is a whole copy, frames) for one client."""
        if self.centre.stream == ():
            return self.t, False, (Identity().encode(self.method.broadcast(self.centre.state, k)),)
        if self.spoken is None:
            sender = link.Sender(
                self.down,
                self.channel.downward(),
                self.method.broadcast(self.centre.state, 0),
                self.centre.stream,
            )
            key = jax.random.fold_in(stream(self.worker.seed, Role.DOWNLINK), self.t)
            wire = sender.send(self.method.broadcast(self.centre.state, 0), None, key, self.t)
            self.spoken = (wire, sender.link, sender.resend())
        wire, _, copy = self.spoken
        line = self.lines[k]
        frames = (*(w for t, w in self.said if t > line.heard), wire)
        missing = line.heard + 1 < self.t and (not self.said or self.said[0][0] > line.heard + 1)
        if line.lost or missing or messages.total(frames) > len(copy):
            return self.t, True, (copy,)
        return self.t - len(frames) + 1, False, frames

    def take(self, k: int, reply: Reply) -> bool:
        """A reply of client k; True when it counts. Raises Rejected, and then nothing has changed
        but the count of rejections.
        """
        try:
            with self.worker.precision():
                return self._take(k, reply)
        except (Rejected, InvalidInput, link.OutOfStep) as error:
            self.lines[k].rejected += 1
            raise messages.refuse(error) from None

    def reject(self, k: int) -> None:
        """Count a message of client k that could not even be opened."""
        self.lines[k].rejected += 1

    def _take(self, k: int, reply: Reply) -> bool:
        messages.check_plan(self.plan.fingerprint, reply.plan)
        line = self.lines[k]
        if reply.round != self.t:
            raise Rejected(f"a message of round {reply.round} came in round {self.t}.")
        if k in self.replies:
            raise Rejected(f"a second message for round {self.t} came; the first one counts.")
        if not self.done and k not in self.asked:
            raise Rejected(f"a message came that nobody asked for in round {self.t}.")
        if not 1 <= reply.samples < 1 << 40 or not 0 <= reply.gradients < 1 << 40:
            raise Rejected(
                f"samples is {reply.samples} and gradients is {reply.gradients}, which cannot be."
            )
        if reply.lost:
            line.lost, line.pull, line.at = True, None, time.time()
            if not self.star:  # it begins anew
                fresh = self._line()
                line.up, line.down, line.message, line.seen = (
                    fresh.up,
                    fresh.down,
                    fresh.message,
                    -1,
                )
            return False
        # What was sent to this client has arrived, whatever becomes of its answer.
        sent = self.request(k, "work", False).frames
        expected = not self.done and k in self.cohort
        if len(reply.frames) > (1 if expected else 0):
            raise Rejected(
                f"the message has {len(reply.frames)} parts, but must have {1 if expected else 0}."
            )
        if reply.frames:
            messages.check_size(reply.frames, self.largest)
            self.arrived[k] = self._decode(k, line, reply.frames[0])
        self.billed[k] = messages.total(sent)
        line.heard, line.pull = self.t, None
        line.lost = line.lost and not self.star  # on a graph until the next pull, which goes whole
        line.samples, line.at = reply.samples, time.time()
        line.scores = reply.scores or line.scores
        self.replies[k] = reply
        return True

    def _decode(self, k: int, line: Line, frame: bytes) -> tuple[Any, Any]:
        """(the message as it arrived, the hub's end of the link afterwards)."""
        if line.up == ():
            message, public = jax.tree.map(jnp.asarray, Identity().decode(frame, self.like)), ()
        else:
            receiver = link.Receiver(self.up, self.channel, self.like_zeros, line.up)
            reference = None
            if self.star:
                said = (
                    self.method.broadcast(self.centre.state, k)
                    if self.spoken is None
                    else link.shaped(self.spoken[1].public.copy, self.worker.broadcast_like())
                )
                reference = self.method.reference(said, self.like_zeros)
            key = per_client(stream(self.worker.seed, Role.UPLINK), self.t, k)
            message = receiver.receive(frame, reference, key, self.t)
            public = receiver.public
        if not bool(all_finite(message)):
            raise Rejected("the message holds NaN or infinity.")
        return message, public

    @property
    def missing(self) -> list[int]:
        """Who was asked and has not answered."""
        everyone = range(self.plan.size) if self.done else self.asked
        return [k for k in everyone if k not in self.replies]

    @property
    def enough(self) -> bool:
        """Whether the round may be closed without those that are missing."""
        senders = [k for k in self.cohort if k in self.replies]
        return bool(senders) and len(senders) >= self.plan.rules.at_least * len(self.cohort)

    def close(self) -> None:
        """Merge what came, bill it, save. Raises Diverged."""
        with self.worker.precision():
            self._merge()
            self._account()
        self.t += 1
        self._open()
        self.save()

    def _merge(self) -> None:
        members = [k for k in self.cohort if k in self.arrived]
        stream_after = self.centre.stream
        if self.spoken is not None:
            self.said.append((self.t, self.spoken[0]))
            stream_after = self.spoken[1]
            self._forget()
        for k in members:
            self.lines[k].up, self.lines[k].seen = self.arrived[k][1], self.t
        if not members:
            self.centre = Centre(self.centre.state, stream_after)
            return
        stacked = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(self.arrived[k][0] for k in members)
        )
        if self.star:
            if self.spoken is not None:
                heard = link.shaped(self.spoken[1].public.copy, self.worker.broadcast_like())
                stacked = shifted(
                    self.method, self.method.broadcast(self.centre.state, 0), heard, stacked
                )
            weights = [
                float(self.lines[k].samples) if self.method.by_samples else 1.0 for k in members
            ]
            dtype = self.worker.data.x.dtype
            state = merged(
                self.method,
                self.centre.state,
                stacked,
                Cohort(jnp.array(members), jnp.array(weights, dtype)),
                self.t,
            )
            if not bool(all_finite(state)):
                raise Diverged(self.method.title, self.t + 1, [])
            self.centre = Centre(state, stream_after)
            return
        self._mix(members)

    def _mix(self, members: list[int]) -> None:
        """Graph: every member's pull, ready to be sent with its next request."""
        graph = self.plan.coupling
        assert graph is not None
        heard = {k: self.arrived[k][0] for k in members}
        if self.method.hears_all:
            heard = {l: heard.get(l, self.lines[l].message) for l in range(self.plan.size)}
        dtype = self.worker.data.x.dtype
        for k in members:
            line, own = self.lines[k], heard[k]
            near = [
                (heard[l], w) for l, w in zip(*graph.neighbours(k), strict=True) if l in heard
            ] or [(own, 0.0)]
            weights = jnp.array([w for _, w in near], dtype)
            pull = pulled(
                self.method,
                own,
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *(m for m, _ in near)),
                weights,
            )
            if self.down.passes:
                wire = Identity().encode(pull)
            else:
                scale, own_pull = weights.sum(), self.method.own_pull(own)
                key = per_client(stream(self.worker.seed, Role.DOWNLINK), self.t, k)
                if line.lost:
                    wire, line.down, pull = lines.send_whole(
                        self.down, self.channel.downward(), line.down, pull, own_pull, scale
                    )
                    line.lost = False
                else:
                    sender = link.Sender(self.down, self.channel.downward(), pull, line.down)
                    receiver = link.Receiver(
                        self.down, self.channel.downward(), pull, line.down.public
                    )
                    wire = sender.send(pull, own_pull, key, self.t, scale)
                    pull, line.down = (
                        receiver.receive(wire, own_pull, key, self.t, scale),
                        sender.link,
                    )
            line.pull = (self.t, wire, float(weights.sum()))
            line.message = own
            up: Any = link.Link(line.up, link.Private((), (), ())) if line.up != () else ()
            after = moved(self.method, self.channel, self.t, up, pull, own)
            line.up = after.public if after != () else ()

    def _forget(self) -> None:
        """Drop broadcasts that everybody has, or that are longer together than a whole copy."""
        assert self.spoken is not None
        heard = min(line.heard for line in self.lines)
        self.said = [(t, wire) for t, wire in self.said if t > heard]
        while sum(len(wire) for _, wire in self.said) > len(self.spoken[2]):
            self.said.pop(0)

    def _account(self) -> None:
        """The bill of a round: what each client sent, and what it was sent (a pull goes down with
        the next request but belongs to this round).
        """
        who = sorted(self.replies)
        up = [messages.total(self.replies[k].frames) for k in who]
        if self.star:
            down = [self.billed[k] for k in who]
        else:
            down = [
                (
                    len(pull[1])
                    if (pull := self.lines[k].pull) is not None and pull[0] == self.t
                    else 0
                )
                for k in who
            ]
        self.ledger.add(
            self.t,
            np.array(who, np.int64),
            np.array(up),
            np.array(down),
            np.array([self.replies[k].gradients for k in who]),
        )

    def end(self) -> None:
        """All clients that could be reached have the last word; what that cost (in a star) is
        billed to the round after the last.
        """
        who = sorted(self.replies)
        if self.star and who:
            self.ledger.add(self.t, np.array(who), 0, np.array([self.billed[k] for k in who]), 0)
        self.finished = True
        self.save()

    # -- folder ------------------------------------------------------------------------------------

    def _check_plan(self) -> None:
        path = self.folder / "plan.json"
        if path.is_file():
            from coterie.runs.experiment import differences

            try:
                was = json.loads(path.read_text())
            except ValueError:
                raise InvalidInput(f"{str(path)!r} is damaged; choose another folder.") from None
            if changed := differences(was, self.plan.to_config()):
                raise InvalidInput(
                    f"the plan was changed since the run began: {'; '.join(changed)}. Undo that, or"
                    " choose another folder."
                )
        else:
            write_json(path, self.plan.to_config())

    def save(self) -> None:
        """Everything, atomically; the bill beside it."""
        trees: dict[str, Any] = {"centre": self.centre}
        blobs: dict[str, bytes] = {f"said{t}": wire for t, wire in self.said}
        for k, line in enumerate(self.lines):
            trees |= {f"up{k}": line.up, f"down{k}": line.down, f"message{k}": line.message}
            if line.pull is not None:
                blobs[f"pull{k}"] = line.pull[1]
        facts = {
            "plan": self.plan.fingerprint,
            "round": self.t,
            "finished": self.finished,
            "lines": [
                {key: getattr(line, key) for key in Line.FACTS}
                | {"pull": line.pull and [line.pull[0], line.pull[2]]}
                for line in self.lines
            ],
        }
        rows = self.ledger.rows()
        blobs["ledger"] = rows.astype("<i8").tobytes()
        Bundle(trees, blobs, facts).save(self.folder / FILE)
        write_table(self.folder / "ledger.parquet", dict(zip(COLUMNS, rows.T, strict=True)))
        write_json(self.folder / "status.json", self.status())

    def _restore(self) -> None:
        like: dict[str, Any] = {"centre": self.centre}
        for k, line in enumerate(self.lines):
            like |= {f"up{k}": line.up, f"down{k}": line.down, f"message{k}": line.message}
        found = Bundle.load(self.folder / FILE, like)
        self.centre = found.trees["centre"] if jax.tree.leaves(self.centre) else self.centre
        self.t, self.finished = found.facts["round"], found.facts["finished"]
        for k, (line, facts) in enumerate(zip(self.lines, found.facts["lines"], strict=True)):
            line.up, line.down, line.message = (
                found.trees.get(f"{what}{k}", getattr(line, what))
                for what in ("up", "down", "message")
            )
            pull = facts.pop("pull")
            line.pull = None if pull is None else (pull[0], found.blobs[f"pull{k}"], pull[1])
            for key, value in facts.items():
                setattr(line, key, value)
        self.said = sorted(
            (int(name[4:]), wire) for name, wire in found.blobs.items() if name.startswith("said")
        )
        rows = np.frombuffer(found.blobs["ledger"], "<i8").reshape(-1, len(COLUMNS))
        for t in np.unique(rows[:, 0]):
            part = rows[rows[:, 0] == t]
            self.ledger.add(int(t), *part.T[1:])

    def status(self) -> dict[str, Any]:
        """What `coterie status` shows."""
        names = (
            self.plan.clients
            if not isinstance(self.plan.clients, int)
            else tuple(map(str, range(self.plan.size)))
        )
        rows = self.ledger.rows()
        clients = []
        for k, (name, line) in enumerate(zip(names, self.lines, strict=True)):
            mine = rows[rows[:, 1] == k]
            clients.append(
                {
                    "name": name,
                    "up": int(mine[:, 2].sum()),
                    "down": int(mine[:, 3].sum()),
                    "rounds": len(np.unique(mine[mine[:, 0] < self.plan.training.rounds][:, 0])),
                    "last_seen": line.at,
                    "rejected": line.rejected,
                    "scores": line.scores,
                }
            )
        return {
            "name": self.plan.name,
            "method": self.method.name,
            "round": self.t,
            "rounds": self.plan.training.rounds,
            "finished": self.finished,
            "up": self.ledger.up,
            "down": self.ledger.down,
            "clients": clients,
            "written": time.time(),
        }
