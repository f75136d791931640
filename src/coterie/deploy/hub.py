"""The hub of a real federation: makes requests, takes replies, merges.

Whatever carries them (Zenoh, Flower, a test) drives it:

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

import numpy as np

from coterie.channel.ends import OutOfStep
from coterie.channel.link import Outgoing
from coterie.core.errors import InvalidInput
from coterie.core.files import make_folder, write_json
from coterie.core.metrics import metric_of
from coterie.core.vector import all_finite
from coterie.coupling.graph import Graph
from coterie.deploy import kept as disk
from coterie.deploy import messages
from coterie.deploy.bill import Bill, Lookout
from coterie.deploy.hub_aside import needs
from coterie.deploy.hub_kept import REMEDY, Arrived, ClientRecord, HubKept
from coterie.deploy.hub_kin import HubKin
from coterie.deploy.hub_round import GraphRound, HubRound, StarRound
from coterie.deploy.messages import Rejected, Reply, Request
from coterie.deploy.plan import Plan
from coterie.deploy.setup import Setup
from coterie.engine.rounds import compiled_cohort
from coterie.runs.experiment import differences

FILE = "hub.safetensors"


class Hub:
    """The hub's side of a plan, in a folder of its own.

    A folder that holds an unfinished run is resumed.
    """

    def __init__(self, plan: Plan, folder: Path, *, say: Callable[[str], None] = print) -> None:
        if plan.peers:
            raise InvalidInput(f"{plan.method.name} has no hub; run it with `coterie peer`.")
        self.plan, self.folder, self.say = plan, folder, say
        self.setup = Setup(plan)
        self.method, self.largest = self.setup.method, self.setup.largest_up
        with self.setup.precision():
            self.kin = None if plan.rule is None else HubKin(self.setup, plan.rule)
            clients = [self._fresh() for _ in range(plan.size)]
        kin = None if self.kin is None else self.kin.fresh()
        bill, self.lookout = Bill(plan.size, folder=folder), Lookout(folder)
        self.kept = HubKept(self.setup.hub, clients, bill, kin=kin, round=plan.alone)
        self._open()
        make_folder(folder, force=(folder / "plan.json").is_file())
        self._check_plan()
        if (folder / FILE).is_file():
            with self.setup.precision():
                kept = disk.load(folder / FILE, self.kept, self._whose, REMEDY)
            self.kept = kept.with_totals(plan.training.rounds) if kept.ledger.parts else kept
        self.round: HubRound = self._round()
        self.standing: dict[str, str] = {}
        """For people: who is there, gone, revoked or has begun anew; nothing where nobody looks."""
        if memory := needs(self.setup):
            say(memory)

    def _round(self) -> HubRound:
        if self.setup.star:
            return StarRound(self.setup, self.say, self.folder)
        graph = self.plan.coupling
        if self.kin is not None and self.kept.kin is not None:
            graph = self.kin.graph(self.kept.kin)
        assert isinstance(graph, Graph)
        return GraphRound(self.setup, graph, self._fresh)

    def _fresh(self) -> ClientRecord:
        """What is kept of a client before the first round."""
        setup = self.setup
        return ClientRecord(setup.first_public, setup.client.down, setup.first_message())

    @property
    def t(self) -> int:
        """The round that is open."""
        return self.kept.round

    @property
    def finished(self) -> bool:
        return self.kept.finished

    @property
    def ledger(self) -> Bill:
        return self.kept.ledger

    @property
    def clients(self) -> list[ClientRecord]:
        """What is kept of each client."""
        return self.kept.clients

    # -- a round -----------------------------------------------------------------------------------

    def _open(self) -> None:
        """Forget what belongs to the round that was just closed."""
        self.arrived: dict[int, Arrived] = {}
        self.replies: dict[int, Reply] = {}
        self.billed: dict[int, tuple[int, int]] = {}
        """Bytes of who has answered: up, and of its request."""

    @property
    def done(self) -> bool:
        """All rounds are closed; what is left is to tell the clients (`farewells`)."""
        return self.t >= self.plan.exchanges

    @property
    def finding(self) -> bool:
        """Whether the hub asks for sketches, of which it makes the graph of the rounds from this
        one on.
        """
        kin, kept = self.kin, self.kept.kin
        return kin is not None and kept is not None and not self.done and kin.due(kept, self.t)

    @property
    def stage(self) -> int:
        """What replies are numbered by."""
        return messages.sketch_round(self.t) if self.finding else self.t

    @property
    def title(self) -> str:
        """What is going on, for people."""
        return f"the sketches before round {self.t}" if self.finding else f"round {self.t}"

    @property
    def cohort(self) -> list[int]:
        """The clients whose messages count in this round."""
        if self.finding:
            return self.asked
        with self.setup.precision():
            drawn = compiled_cohort(self.setup.spec, self.setup.seed, self.plan.at(self.t))
        return [int(k) for k in np.asarray(drawn)]

    @property
    def asked(self) -> list[int]:
        """The clients that work in this round, or send a sketch before it."""
        if self.finding:
            assert self.kin is not None
            assert self.kept.kin is not None
            return self.kin.asked(self.kept.kin)
        return list(range(self.plan.size)) if self.method.trains_all else self.cohort

    def requests(self) -> dict[int, Request]:
        """What to ask of whom in this round, of those that have not answered yet.

        The same bytes however often it is called.
        """
        assert not self.done
        return {k: self.question(k) for k in self.asked if k not in self.replies}

    def farewells(self) -> dict[int, Request]:
        """After the last round: the last word of the hub, for every client that has not confirmed
        it.
        """
        assert self.done
        return {k: self.question(k) for k in range(self.plan.size) if k not in self.replies}

    def question(self, k: int) -> Request:
        """What to ask of client k now."""
        if self.done:
            return self.request(k, "finish", False)
        if self.finding:
            return self.request(k, "sketch", False)
        return self.request(k, "work", k in self.cohort)

    def request(self, k: int, kind: str, send: bool) -> Request:
        of, record = self.plan.fingerprint, self.clients[k]
        basic = Request(
            *(of, kind, self.t, send),
            seen=record.seen,
            worked=record.worked,
            again=self.kept.again,
        )
        with self.setup.precision():
            return self.round.request(self.kept, k, basic)

    def take(self, k: int, reply: Reply) -> bool:
        """A reply of client k; True when it counts. Raises Rejected, and then nothing has changed
        but the count of rejections.
        """
        try:
            with self.setup.precision():
                return self._take(k, reply)
        except (Rejected, InvalidInput, OutOfStep) as error:
            self.reject(k)
            raise messages.refuse(error) from None

    def reject(self, k: int) -> None:
        """Count a message of client k that cannot be used."""
        record = self.clients[k]
        self._note(k, dataclasses.replace(record, rejected=record.rejected + 1))

    def _note(self, k: int, record: ClientRecord) -> None:
        self.kept = self.kept.with_client(k, record)

    def _take(self, k: int, reply: Reply) -> bool:
        self._check(k, reply)
        record, now = self.clients[k], time.time()
        if reply.lost:
            self._note(k, dataclasses.replace(self.round.lost(record), at=now))
            return False
        # What was sent to this client has arrived, whatever becomes of its answer.
        sent = self.request(k, "work", False).frames
        expected = 1 if not self.done and k in self.cohort else 0
        if len(reply.frames) > expected:
            raise Rejected(f"the message has {len(reply.frames)} parts, but must have {expected}.")
        if reply.frames:
            self.arrived[k] = self.round.keep(k, self._received(k, reply.frames[0]))
        elif self.finding:
            raise Rejected("it holds no sketch.")
        self.billed[k] = messages.total(reply.frames), messages.total(sent)
        self._note(
            k,
            dataclasses.replace(
                record,
                last_broadcast=self.t,
                worked=record.worked if self.finding or self.done else self.t,
                pull=None,
                lost=record.lost and not self.setup.star,  # on a graph until the next pull is whole
                samples=reply.samples,
                at=now,
                scores=reply.scores or record.scores,
            ),
        )
        self.replies[k] = dataclasses.replace(reply, frames=())
        return True

    def _check(self, k: int, reply: Reply) -> None:
        messages.check_plan(self.plan.fingerprint, reply.plan)
        if reply.round != self.stage:
            raise Rejected(f"a message of round {reply.round} came in {self.title}.")
        if k in self.replies:
            raise Rejected(f"a second message for round {self.t} came; the first one counts.")
        if not self.done and k not in self.asked:
            raise Rejected(f"a message came that nobody asked for in round {self.t}.")
        if not 1 <= reply.samples < 1 << 40 or not 0 <= reply.gradients < 1 << 40:
            raise Rejected(
                f"samples is {reply.samples} and gradients is {reply.gradients}, which cannot be."
            )

    def _received(self, k: int, frame: bytes) -> Arrived:
        if self.finding:
            assert self.kin is not None
            return Arrived(self.kin.decoded(frame), ())
        messages.check_size((frame,), self.largest)
        reference = None if self.setup.up.passes else self.round.reference(self.kept, k)
        known = Outgoing(None, reference, t=self.t)
        found = Arrived(*self.setup.receive_up(k, self.clients[k].up, frame, known))
        if not bool(all_finite(found.message)):
            raise Rejected("the message holds NaN or infinity.")
        return found

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
        arrived = {k: self.arrived[k] for k in self.cohort if k in self.arrived}
        if self.finding:
            self._learn({k: one.message for k, one in arrived.items()})
            return
        with self.setup.precision():
            kept = self.round.close(self.kept, arrived)
        if kept.kin is not None:
            kept = dataclasses.replace(kept, kin=kept.kin.trained(sorted(self.replies)))
        self._save(dataclasses.replace(self._billed(kept), round=self.t + 1))
        self._open()

    def _learn(self, sketches: dict[int, Any]) -> None:
        """The graph of the rounds from this one on."""
        assert self.kin is not None
        assert self.kept.kin is not None
        kin = self.kin.learnt(self.kept.kin, sketches, self.t)
        said = {k: self.replies[k] for k in sorted(sketches)}
        rows = [(k, self.billed[k][0], 0, r.gradients) for k, r in said.items()]
        kept = self.kept.with_bill(kin.learnt, rows, counts=kin.learnt < self.plan.training.rounds)
        self._save(dataclasses.replace(kept, kin=kin))
        self.round = self._round()
        self._open()

    def _billed(self, kept: HubKept) -> HubKept:
        """With the bill of this round: what each client sent, and what it was sent."""
        rows = [
            (k, up, self.round.down(kept, k, down), self.replies[k].gradients)
            for k, (up, down) in sorted(self.billed.items())
        ]
        t = self.plan.at(self.t)
        return kept.with_bill(t, rows, counts=t < self.plan.training.rounds)

    def end(self) -> None:
        """All clients that could be reached have the last word; what that cost (in a star) is
        billed to the round after the last.
        """
        kept = self.kept
        if self.setup.star and self.replies:
            rows = [(k, 0, self.billed[k][1], 0) for k in sorted(self.replies)]
            kept = kept.with_bill(self.plan.at(self.t), rows, counts=False)
        self._save(dataclasses.replace(kept, finished=True))

    def set_back(self) -> None:
        """Its operator says that the run goes on from here, also for clients that are ahead."""
        again = max(self.kept.again + 1, int(time.time()))
        self._save(dataclasses.replace(self.kept, again=again, finished=False))

    # -- folder ------------------------------------------------------------------------------------

    @property
    def _whose(self) -> dict[str, str]:
        return {"plan": self.plan.fingerprint}

    def _check_plan(self) -> None:
        path = self.folder / "plan.json"
        if not path.is_file():
            write_json(path, self.plan.to_config())
            return
        try:
            was = json.loads(path.read_text())
        except ValueError:
            raise InvalidInput(f"{str(path)!r} is damaged; choose another folder.") from None
        if changed := differences(was, self.plan.to_config()):
            raise InvalidInput(
                f"the plan was changed since the run began: {'; '.join(changed)}. Undo that, or"
                " choose another folder."
            )

    def _save(self, new: HubKept) -> None:
        """Everything, atomically and on disk first; the bill beside it."""
        disk.save(self.folder / FILE, new, self._whose)
        self.kept = new
        self.lookout.look(self.ledger, now=self.finished)
        self.tell()

    def tell(self) -> None:
        """Write what `coterie status` shows."""
        write_json(self.folder / "status.json", self.status())

    def status(self) -> dict[str, Any]:
        names = (
            self.plan.clients
            if not isinstance(self.plan.clients, int)
            else tuple(map(str, range(self.plan.size)))
        )
        clients = [
            {
                "name": name,
                "standing": self.standing.get(name, ""),
                "up": record.billed.up,
                "down": record.billed.down,
                "rounds": record.billed.rounds,
                "last_seen": record.at,
                "rejected": record.rejected,
                "scores": record.scores,
            }
            for name, record in zip(names, self.clients, strict=True)
        ]
        return {
            "name": self.plan.name,
            "method": self.method.name,
            "metric": metric_of(self.plan.training.metric, self.plan.shape.task).told(),
            "round": self.t,
            "rounds": self.plan.exchanges,
            "finished": self.finished,
            "exact": not self.kept.again,
            "up": self.ledger.up,
            "down": self.ledger.down,
            "clients": clients,
            "written": time.time(),
        }
