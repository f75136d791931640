"""A client of a hub: answers requests, one round each.

Whatever carries the requests (Flower, Zenoh, a test) calls `answer` and sends back what it gives.
Everything a client keeps (its personal model above all) is in one file of its own folder, written
before the answer leaves. Asked again for what it did last, it gives the same answer again; so
requests may be repeated after any crash, and nothing is done twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import link
from coterie.channel.ends import OutOfStep
from coterie.channel.link import Outgoing
from coterie.core.errors import InvalidInput
from coterie.core.typing import PyTree
from coterie.core.vector import Vector, all_finite
from coterie.data.federation import Federation
from coterie.deploy import kept as disk
from coterie.deploy import messages, programs
from coterie.deploy.hub_kin import Sketching
from coterie.deploy.messages import Ahead, Forgot, Rejected, Reply, Request
from coterie.deploy.plan import Plan
from coterie.deploy.worker import Worker
from coterie.engine.setting import ClientState
from coterie.runs.export import write_models

FILE = "client.safetensors"
REMEDY = (
    "put back a copy that was taken when the client had stopped, or delete the file and begin with"
    " a new model: `coterie client join SITE --newcomer`"
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """What a client keeps from round to round."""

    state: ClientState
    received: PyTree
    """Star: what the hub sent last, as it arrived."""
    message: PyTree
    """Graph: what this client sent last, as it arrived."""
    broadcast_copy: PyTree = ()
    """Star over public copies: this client's copy of what the hub has broadcast so
    far."""
    last_round: int = -1
    """The round of the last broadcast that arrived, or of the last pull that was absorbed."""
    worked: int = -1
    sent: int = -1
    asked: str = ""
    """Digest of the last request."""
    reply: Reply | None = None
    finished: bool = False
    again: int = 0
    """Of the last request: when the run was set back."""


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
        newcomer: bool = False,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if plan.peers:
            raise InvalidInput(f"{plan.method.name} has no hub; run it with `coterie peer`.")
        self.plan, self.folder, self.share_scores, self.say = plan, folder, share_scores, say
        self.newcomer = newcomer or plan.rules.on_missing == "go-on"
        """Whether it may go on when its folder was lost, as one who has just joined."""
        self.worker = data if isinstance(data, Worker) else Worker(plan, number, data)
        self.number = number
        self.method = self.worker.method
        self.largest = self.worker.largest_down
        with self.worker.precision():
            self.sketching = None if plan.rule is None else Sketching(self.worker, plan.rule)
            self.kept = self._fresh()
            if self._file.is_file():
                self.kept = disk.load(self._file, self.kept, self._whose, REMEDY)

    # -- what is kept ------------------------------------------------------------------------------

    def _fresh(self) -> Kept:
        worker = self.worker
        broadcast_copy = worker.hub.link.public if worker.hub.link != () else ()
        received, message = worker.first_broadcast(), worker.first_message()
        return Kept(worker.client, received, message, broadcast_copy)

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    @property
    def _whose(self) -> dict[str, str | int]:
        return {"plan": self.plan.fingerprint, "client": self.number}

    def _keep(self, new: Kept) -> None:
        """On disk first: what cannot be written did not happen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        disk.save(self._file, new, self._whose)
        self.kept = new

    # -- a round -----------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """What this client says to a request, in the version in which it was asked.

        Raises Rejected (the request is not to be answered) or InvalidInput; then nothing has
        changed.
        """
        return dataclasses.replace(self._answer(request), wire=request.wire)

    def _answer(self, request: Request) -> Reply:
        messages.check_plan(self.plan.fingerprint, request.plan)
        if request.kind not in ("work", "finish", "sketch"):
            raise Rejected(
                f"the request is of the kind {request.kind!r}, but must be 'work', 'sketch' or"
                " 'finish'."
            )
        if request.kind == "sketch" and self.sketching is None:
            raise Rejected("the hub asks for a sketch, but the plan's graph is not learnt.")
        if not 0 <= request.round <= self.plan.exchanges:
            raise Rejected(
                f"the request is for round {request.round}, but the plan has {self.plan.exchanges}."
            )
        asked = messages.digest(request, self.plan.fingerprint)
        if asked == self.kept.asked and self.kept.reply is not None:
            return self.kept.reply
        if anew := self._astray(request):
            return anew
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
            begun, gradients = self._alone(self.kept)
            try:
                kept = self._received(begun, request)
            except Lost as error:
                return self._lost(request, error)
            if request.kind == "finish":
                return self._finish(kept, request, asked)
            if request.kind == "sketch":
                return self._sketch(kept, request, asked, gradients)
            return self._work(kept, request, asked)

    def _astray(self, request: Request) -> Reply | None:
        """What is said when hub and client do not know the same rounds, if so: one of them has an
        older folder than it had.

        Raises Ahead or Forgot.
        """
        kept, t = self.kept, request.round
        if request.again < kept.again or (
            request.again == kept.again and request.kind != "finish" and t <= kept.worked
        ):
            raise Ahead(t, kept.worked)
        if request.worked > kept.worked and self._keeps:
            return self._forgot(request)
        if request.again == kept.again:
            return None
        if t <= kept.worked:
            back = f"the hub was set back from round {kept.worked} to {t}, and this client with it"
            return self._anew(request, f"{back}, but for its model", t - 1)
        self._keep(dataclasses.replace(kept, again=request.again))
        return None

    def _forgot(self, request: Request) -> Reply:
        """Raises Forgot, unless this client may go on as a newcomer."""
        kept = self.kept
        known = f"round {kept.worked}" if kept.worked >= 0 else "none"
        less = (
            f"the hub has had round {request.worked} of this client, but the folder"
            f" {self.folder.name!r} knows of {known}: it was lost, or an older copy was put back"
        )
        if not self.newcomer:
            raise Forgot(
                f'{less}; with on_missing = "wait" the result would not be that of the plan any'
                " more. Put the folder back as it was, or take part as a newcomer, with what there"
                " is: `coterie client join SITE --newcomer`."
            )
        return self._anew(request, f"{less}; it goes on as a newcomer", request.worked, True)

    @property
    def _keeps(self) -> bool:
        """Whether there is anything that this client alone has."""
        return bool(jax.tree.leaves(self.kept.state)) or not self.worker.star

    def _anew(self, request: Request, why: str, worked: int, newcomer: bool = False) -> Reply:
        """Go on from round `worked` with the model that there is, and links that begin anew."""
        with self.worker.precision():
            begun, _ = self._alone(self.kept)
        state = self.worker.client._replace(method_state=begun.state.method_state)
        whole = dataclasses.replace(begun, state=state, last_round=-1, sent=-2, reply=None)
        new = dataclasses.replace(whole, worked=worked, finished=False, again=request.again)
        self._keep(new)
        return self._asks_whole(request, why, newcomer)

    def _lost(self, request: Request, error: Lost) -> Reply:
        if not self.worker.star:
            # The hub forgets its ends of our links: so do we, and −2 makes our next message a whole
            # one.
            state = self.worker.client._replace(method_state=self.kept.state.method_state)
            self._keep(dataclasses.replace(self.kept, state=state, last_round=-1, sent=-2))
        return self._asks_whole(request, str(error))

    def _asks_whole(self, request: Request, why: str, newcomer: bool = False) -> Reply:
        """Ask the hub for a whole copy."""
        self.say(f"round {request.round}: {why}; asking the hub for a whole copy.")
        t = messages.sketch_round(request.round) if request.kind == "sketch" else request.round
        samples = self.worker.samples
        return Reply(self.plan.fingerprint, t, samples, lost=True, newcomer=newcomer)

    def _received(self, kept: Kept, request: Request) -> Kept:
        receive = self._broadcast if self.worker.star else self._pull
        try:
            after = receive(kept, request)
        except (Rejected, Lost):
            raise
        except OutOfStep as error:
            raise Lost(str(error)) from None
        except InvalidInput as error:
            raise messages.refuse(error) from None
        if not bool(all_finite((after.received, after.state.method_state))):
            raise Rejected(f"what the hub says in round {request.round} holds NaN or infinity.")
        return after

    def _broadcast(self, kept: Kept, request: Request) -> Kept:
        """Star: what the hub says in this round."""
        if not request.frames:
            raise Rejected(f"the request for round {request.round} holds nothing.")
        received, public = kept.received, kept.broadcast_copy
        if public == ():
            messages.check_size(request.frames, self.largest)
            received, _ = self.worker.receive_down((), request.frames[-1], Outgoing(None))
            return dataclasses.replace(kept, received=received, last_round=request.round)
        if not request.whole and not request.first <= kept.last_round + 1 <= request.round + 1:
            raise Lost(
                f"the hub says rounds {request.first} to {request.round}, but the last one here is"
                f" {kept.last_round}"
            )
        for t, frame in enumerate(request.frames, request.first):
            if t > kept.last_round or request.whole:
                received, public = self.worker.receive_down(public, frame, Outgoing(None, t=t))
        return dataclasses.replace(
            kept, received=received, broadcast_copy=public, last_round=request.round
        )

    def _pull(self, kept: Kept, request: Request) -> Kept:
        """Graph: the neighbours' pull of the last round in which this client took part."""
        t, state, worker = request.first, kept.state, self.worker
        if not request.frames or (t == kept.last_round and not request.whole):
            return kept
        if t != kept.sent:
            raise Lost(
                f"the hub has the pull of round {t}, but this client sent its last message in round"
                f" {kept.sent}"
            )
        known = Outgoing(None, self.method.own_pull(kept.message), t=t)
        if request.scale is not None:
            dtype = link.flat(kept.message).dtype
            known = known._replace(scale=jnp.asarray(request.scale, dtype))
        public = () if state.down == () else state.down.public
        pull, public = worker.receive_down(public, request.frames[0], known)
        if state.down != ():
            state = state._replace(down=state.down._replace(public=public))
        at = self.plan.at(t)
        state = programs.absorb(worker.spec, worker.setting, at, state, pull, kept.message)
        return dataclasses.replace(kept, state=state, last_round=t)

    def _work(self, kept: Kept, request: Request, asked: str) -> Reply:
        t, worker = request.round, self.worker
        due = self.plan.evaluates(t)
        scores = self._scores(kept, t) if due else {}
        # Whole, when the hub never got the last message.
        done = worker.work(
            kept.state, kept.received, t, sending=request.send, whole=request.seen != kept.sent
        )
        reply = Reply(
            self.plan.fingerprint,
            t,
            worker.samples,
            done.gradients,
            scores=scores if self.share_scores else {},
            frames=() if done.wire is None else (done.wire,),
        )
        new = dataclasses.replace(kept, state=done.state, worked=t, asked=asked, reply=reply)
        if not worker.star:
            new = dataclasses.replace(new, message=done.message)
        self._keep(new if done.wire is None else dataclasses.replace(new, sent=t))
        if due:
            self._note(t, scores)
        return reply

    def _alone(self, kept: Kept) -> tuple[Kept, int]:
        """After the rounds before there is a graph, for which nobody is asked; and their
        gradients.
        """
        rounds = [t for t in self.worker.rounds_alone(self.number) if t > kept.worked]
        if not rounds:
            return kept, 0
        state, message, gradients = kept.state, kept.message, 0
        for t in rounds:
            done = self.worker.work(state, (), t, sending=False, whole=False)
            state, message, gradients = done.state, done.message, gradients + done.gradients
        worked = self.plan.alone - 1
        return dataclasses.replace(kept, state=state, message=message, worked=worked), gradients

    def _sketch(self, kept: Kept, request: Request, asked: str, gradients: int) -> Reply:
        """How this client's message has moved since the start."""
        assert self.sketching is not None
        wire = self.sketching.encoded(kept.state.method_state)
        t, samples = messages.sketch_round(request.round), self.worker.samples
        reply = Reply(self.plan.fingerprint, t, samples, gradients, frames=(wire,))
        self._keep(dataclasses.replace(kept, asked=asked, reply=reply))
        return reply

    def _finish(self, kept: Kept, request: Request, asked: str) -> Reply:
        scores = self._scores(kept, request.round)
        reply = Reply(
            self.plan.fingerprint,
            request.round,
            self.worker.samples,
            scores=scores if self.share_scores else {},
        )
        done = dataclasses.replace(kept, asked=asked, reply=reply, finished=True)
        # Before it counts as finished: a full disk must not leave it without.
        self._write_models(done, self.folder / "models")
        self._keep(done)
        self._note(request.round, scores)
        return reply

    # -- looking -----------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """How many rounds the models have behind them."""
        return self._rounds(self.kept)

    def _rounds(self, kept: Kept) -> int:
        return self.plan.exchanges if kept.finished else kept.worked + 1

    def models(self) -> dict[str, Vector]:
        """This client's models as they are now, by view, as numpy arrays."""
        return self._models(self.kept)

    def _models(self, kept: Kept) -> dict[str, Vector]:
        with self.worker.precision():
            models = self.worker.models(kept.received, kept.state.method_state, self._rounds(kept))
            return {view: v.map(np.asarray) for view, v in models.items()}

    def _scores(self, kept: Kept, t: int) -> dict[str, float]:
        return self.worker.scores(kept.received, kept.state.method_state, t)

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
