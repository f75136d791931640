"""A client of a hub: answers requests, one round each.

Whatever carries the requests (Flower, Zenoh, a test) calls `answer` and sends back what it gives.
Everything a client keeps (its personal model above all) is in one file of its own folder, written
before the answer leaves. Asked again for what it did last, it gives the same answer again; so
requests may be repeated after any crash, and nothing is done twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import link
from coterie.channel.codec import Identity
from coterie.core.errors import InvalidInput
from coterie.core.randomness import Role, per_client, stream
from coterie.core.vector import Vector, all_finite
from coterie.data.federation import Federation
from coterie.deploy import lines, messages
from coterie.deploy.messages import Rejected, Reply, Request
from coterie.deploy.plan import Plan
from coterie.deploy.state import Bundle
from coterie.deploy.worker import Worker, absorbed, moved
from coterie.engine.rounds import Row
from coterie.runs.export import write_models

FILE = "client.safetensors"


@dataclasses.dataclass(frozen=True)
class Kept:
    """What a client keeps from round to round."""

    row: Row
    received: Any
    """Star: what the hub said last."""
    message: Any
    """Graph: what this client sent last, as it arrived."""
    broadcasts: Any = ()
    """Star over public copies: this client's end of the hub's stream."""
    heard: int = -1
    """The round of the last broadcast that was heard, or of the last pull that was absorbed."""
    worked: int = -1
    sent: int = -1
    asked: str = ""
    """Digest of the last request."""
    reply: Reply | None = None
    finished: bool = False


class Lost(Exception):
    """This client's end of a link does not fit what came."""


class Client:
    """One client. `data` is a federation of one; `folder` is this client's own."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        data: Federation | Worker,
        folder: Path,
        *,
        share_scores: bool = False,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if plan.peers:
            raise InvalidInput(f"{plan.method.name} has no hub; run it with `coterie peer`.")
        self.plan, self.folder, self.share_scores, self.say = plan, folder, share_scores, say
        self.worker = data if isinstance(data, Worker) else Worker(plan, number, data)
        self.number = number
        self.method, self.channel = self.worker.method, plan.channel
        self.up, self.down = (
            link.uplink(plan.channel, self.method.exchange),
            link.downlink(plan.channel, self.method.exchange),
        )
        self.star = self.method.exchange == "star"
        with self.worker.precision():
            self.like = self.worker.message_like()
            self.broadcast_like = self.worker.broadcast_like() if self.star else ()
            self.largest = lines.largest(
                self.down, self.channel.downward(), self.broadcast_like if self.star else self.like
            )
            self.kept = self._restored() or self._fresh()

    # -- what is kept ------------------------------------------------------------------------------

    def _fresh(self) -> Kept:
        worker = self.worker
        received = worker.method.broadcast(worker.hub.state, 0) if self.star else ()
        message = () if self.star else worker.method.message(worker.row.memory)
        broadcasts = worker.hub.stream.public if self.star and worker.hub.stream != () else ()
        return Kept(worker.row, received, message, broadcasts)

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    def _restored(self) -> Kept | None:
        if not self._file.is_file():
            return None
        fresh = self._fresh()
        like = {
            "row": fresh.row,
            "received": fresh.received,
            "message": fresh.message,
            "broadcasts": fresh.broadcasts,
        }
        found = Bundle.load(self._file, like)
        if found.facts["plan"] != self.plan.fingerprint or found.facts["number"] != self.number:
            raise InvalidInput(
                f"{str(self._file)!r} belongs to another plan or client; give this one a folder of"
                " its own."
            )
        reply = None
        if "reply" in found.facts:
            count = found.facts["frames"]
            reply = messages.opened(
                Reply, found.facts["reply"], tuple(found.blobs[f"frame{i}"] for i in range(count))
            )
        facts = {key: found.facts[key] for key in ("heard", "worked", "sent", "asked", "finished")}
        return Kept(
            **{name: found.trees.get(name, tree) for name, tree in like.items()},
            **facts,
            reply=reply,
        )

    def _keep(self, new: Kept) -> None:
        """On disk first: what cannot be written did not happen."""
        facts: dict[str, Any] = {"plan": self.plan.fingerprint, "number": self.number}
        facts |= {
            key: getattr(new, key) for key in ("heard", "worked", "sent", "asked", "finished")
        }
        blobs = {}
        if new.reply is not None:
            facts |= {"reply": messages.envelope(new.reply), "frames": len(new.reply.frames)}
            blobs = {f"frame{i}": frame for i, frame in enumerate(new.reply.frames)}
        trees = {
            "row": new.row,
            "received": new.received,
            "message": new.message,
            "broadcasts": new.broadcasts,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        Bundle(trees, blobs, facts).save(self._file)
        self.kept = new

    # -- a round -----------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """What this client says to a request.

        Raises Rejected (the request is not to be answered) or InvalidInput; then nothing has
        changed.
        """
        messages.check_plan(self.plan.fingerprint, request.plan)
        if request.kind not in ("work", "finish"):
            raise Rejected(
                f"the request is of the kind {request.kind!r}, but must be 'work' or 'finish'."
            )
        if not 0 <= request.round <= self.plan.training.rounds:
            raise Rejected(
                f"the request is for round {request.round}, but the plan has"
                f" {self.plan.training.rounds}."
            )
        asked = hashlib.sha256(
            messages.envelope(request).encode() + b"".join(request.frames)
        ).hexdigest()
        if asked == self.kept.asked and self.kept.reply is not None:
            return self.kept.reply
        if request.kind == "work" and request.round <= self.kept.worked:
            raise Rejected(
                f"the hub asks for round {request.round}, but this client has done round"
                f" {self.kept.worked} already: an old request, or an old hub."
            )
        if (
            not request.whole
            and len(request.frames) > 1
            and messages.total(request.frames) > 2 * self.largest
        ):
            raise Rejected(
                f"a request has {messages.total(request.frames)} bytes, which is more than any hub"
                " should send."
            )
        with self.worker.precision():
            try:
                kept = self._heard(self.kept, request)
            except Lost as error:
                self.say(f"round {request.round}: {error}; asking the hub for a whole copy.")
                # the hub forgets its ends of our links: so do we, and −2 makes our next message a
                # whole one
                if not self.star:
                    fresh = self.worker.row
                    self._keep(
                        dataclasses.replace(
                            self.kept,
                            row=Row(self.kept.row.memory, fresh.up, fresh.down),
                            heard=-1,
                            sent=-2,
                        )
                    )
                return Reply(self.plan.fingerprint, request.round, self.worker.samples, lost=True)
            return (
                self._finish(kept, request, asked)
                if request.kind == "finish"
                else self._work(kept, request, asked)
            )

    def _heard(self, kept: Kept, request: Request) -> Kept:
        try:
            heard = self._broadcast(kept, request) if self.star else self._pull(kept, request)
        except (Rejected, Lost):
            raise
        except link.OutOfStep as error:
            raise Lost(str(error)) from None
        except InvalidInput as error:
            raise messages.refuse(error) from None
        if not bool(all_finite((heard.received, heard.row.memory))):
            raise Rejected(f"what the hub says in round {request.round} holds NaN or infinity.")
        return heard

    def _broadcast(self, kept: Kept, request: Request) -> Kept:
        """Star: what the hub says in this round."""
        if not request.frames:
            raise Rejected(f"the request for round {request.round} holds nothing.")
        if kept.broadcasts == ():
            messages.check_size(request.frames, self.largest)
            received = Identity().decode(request.frames[-1], self.broadcast_like)
            return dataclasses.replace(
                kept, received=jax.tree.map(jnp.asarray, received), heard=request.round
            )
        receiver = link.Receiver(
            self.down, self.channel.downward(), lines.zeros(self.broadcast_like), kept.broadcasts
        )
        if not request.whole and not request.first <= kept.heard + 1 <= request.round + 1:
            raise Lost(
                f"the hub says rounds {request.first} to {request.round}, but the last one heard is"
                f" {kept.heard}"
            )
        received = kept.received
        for i, frame in enumerate(request.frames):
            t = request.first + i
            if t <= kept.heard and not request.whole:
                continue
            key = jax.random.fold_in(stream(self.worker.seed, Role.DOWNLINK), t)
            received = receiver.receive(frame, None, key, t)
        return dataclasses.replace(
            kept, received=received, broadcasts=receiver.public, heard=request.round
        )

    def _pull(self, kept: Kept, request: Request) -> Kept:
        """Graph: the neighbours' pull of the last round in which this client took part."""
        if not request.frames or (request.first == kept.heard and not request.whole):
            return kept
        if request.first != kept.sent:
            raise Lost(
                f"the hub has the pull of round {request.first}, but this client sent its last"
                f" message in round {kept.sent}"
            )
        receiver = link.Receiver(
            self.down,
            self.channel.downward(),
            lines.zeros(self.like),
            () if kept.row.down == () else kept.row.down.public,
        )
        key = (
            None
            if self.down.passes
            else per_client(stream(self.worker.seed, Role.DOWNLINK), request.first, self.number)
        )
        scale = (
            None
            if request.scale is None
            else jnp.asarray(request.scale, link.flat(kept.message).dtype)
        )
        pull = jax.tree.map(
            jnp.asarray,
            receiver.receive(
                request.frames[0], self.method.own_pull(kept.message), key, request.first, scale
            ),
        )
        memory = absorbed(self.method, kept.row.memory, pull, request.first)
        up = moved(self.method, self.channel, request.first, kept.row.up, pull, kept.message)
        down = (
            kept.row.down if kept.row.down == () else kept.row.down._replace(public=receiver.public)
        )
        return dataclasses.replace(kept, row=Row(memory, up, down), heard=request.first)

    def _work(self, kept: Kept, request: Request, asked: str) -> Reply:
        t, method = request.round, self.method
        due = t % self.plan.training.eval_every == 0
        scores = self._scores(kept, t) if due else {}
        step = self.worker.work(kept.received, kept.row.memory, t)
        frames: tuple[bytes, ...] = ()
        up, message = kept.row.up, step.message
        if request.send and bool(step.sent):
            reference = method.reference(kept.received, step.message) if self.star else None
            wire, up, message = self._encode(kept, request, step.message, reference, t)
            frames = (wire,)
        reply = Reply(
            self.plan.fingerprint,
            t,
            self.worker.samples,
            int(step.gradients),
            scores=scores if self.share_scores else {},
            frames=frames,
        )
        row = Row(step.memory, up, kept.row.down)
        sent = t if frames else kept.sent
        self._keep(
            dataclasses.replace(
                kept,
                row=row,
                message=() if self.star else message,
                worked=t,
                sent=sent,
                asked=asked,
                reply=reply,
            )
        )
        if due:
            self._note(t, scores)
        return reply

    def _encode(
        self, kept: Kept, request: Request, message: Any, reference: Any, t: int
    ) -> tuple[bytes, Any, Any]:
        """(bytes, the link afterwards, the message as it arrives)."""
        if kept.row.up == ():
            return Identity().encode(message), (), message
        if self.up.copies and request.seen != kept.sent:  # the hub never got the last one
            return lines.send_whole(self.up, self.channel, kept.row.up, message, reference)
        sender = link.Sender(self.up, self.channel, message, kept.row.up)
        receiver = link.Receiver(self.up, self.channel, message, kept.row.up.public)
        key = per_client(stream(self.worker.seed, Role.UPLINK), t, self.number)
        wire = sender.send(message, reference, key, t)
        arrived = receiver.receive(wire, reference, key, t)
        return wire, sender.link, arrived

    def _finish(self, kept: Kept, request: Request, asked: str) -> Reply:
        scores = self._scores(kept, request.round)
        reply = Reply(
            self.plan.fingerprint,
            request.round,
            self.worker.samples,
            scores=scores if self.share_scores else {},
        )
        done = dataclasses.replace(kept, asked=asked, reply=reply, finished=True)
        self._write_models(
            done, self.folder / "models"
        )  # before it counts as finished: a full disk must not leave it without
        self._keep(done)
        self._note(request.round, scores)
        return reply

    # -- looking -----------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """How many rounds the models have behind them."""
        return self._rounds(self.kept)

    def _rounds(self, kept: Kept) -> int:
        return self.plan.training.rounds if kept.finished else kept.worked + 1

    def models(self) -> dict[str, Vector]:
        """This client's models as they are now, by view, as numpy arrays."""
        return self._models(self.kept)

    def _models(self, kept: Kept) -> dict[str, Vector]:
        with self.worker.precision():
            models = self.worker.models(kept.received, kept.row.memory, self._rounds(kept))
            return {view: v.map(np.asarray) for view, v in models.items()}

    def _scores(self, kept: Kept, t: int) -> dict[str, float]:
        return (
            self.worker.scores(self.worker.models(kept.received, kept.row.memory, t))
            if self.worker.held
            else {}
        )

    def _note(self, t: int, scores: dict[str, float]) -> None:
        if scores:
            with (self.folder / "scores.jsonl").open("a") as f:
                f.write(
                    json.dumps({"round": t, **{k: round(v, 6) for k, v in scores.items()}}) + "\n"
                )

    def export(self, folder: Path) -> list[Path]:
        """Write the models as safetensors files, one per view."""
        return self._write_models(self.kept, folder)

    def _write_models(self, kept: Kept, folder: Path) -> list[Path]:
        facts = {
            "client": str(self.number),
            "method": self.method.name,
            "round": str(self._rounds(kept)),
            "model": self.plan.model.name,
        }
        return write_models(self._models(kept), facts, folder)
