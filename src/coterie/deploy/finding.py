"""How a deployed peer finds its kin: alone at first, then by gossip (coupling/learnt/gossip.py).

Whatever carries the questions (Zenoh, a test) drives it:

    finding.train()                         # the rounds that are done alone, one at a time
    while not finding.through:
        for k in finding.awaited: …send finding.question(k)…
        finding.answer(k, facts, frames)    # of every question that comes; gives facts and frames
        finding.hear(k, facts, frames)      # of every answer
        finding.go_on(silent)               # when nobody is awaited, or without the silent
    finding.look_again(found)               # after the rounds over this graph, if `every` says so

Gossip is a list of steps: two in each phase (own sketches, then those of others), one in which
sketches are sent to those that were chosen, ⌈log2 N⌉ in which it is passed on that all have done
that, and one of yes and no. In all but one a peer asks for what others have to say in that step.
What a peer keeps is in one file of its own folder, written before a step is left and before a
sketch is confirmed: a restarted peer answers again what it answered before.

Where the graph is learnt again and again, a search begins when the rounds over the graph before are
done. Who is through a search knows that all others have begun it (that is what is passed on), and
so that nobody needs what was said in the search before, or in rounds before this one. So it is
enough to be able to answer for two searches, the last and the one before.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import InvalidInput, shown
from coterie.core.files import write_json
from coterie.core.metrics import metric_of
from coterie.coupling.learnt import gossip
from coterie.deploy import kept as disk
from coterie.deploy.bill import Bill
from coterie.deploy.finding_kept import FILE, LOOK_SECONDS, FindingKept, Found, Spoken
from coterie.deploy.hub_kin import Sketching
from coterie.deploy.messages import Rejected, refuse
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.plan import Plan
from coterie.deploy.plan_graph import looks
from coterie.deploy.worker import Worker

YES, NO = b"\1", b"\0"


class Finding:
    """One peer that looks for its kin, once or again and again."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        worker: Worker,
        folder: Path,
        *,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        assert plan.rule is not None
        assert plan.rule.gossips
        assert not isinstance(plan.clients, int)
        self.plan, self.number, self.worker, self.folder, self.say = (
            plan,
            number,
            worker,
            folder,
            say,
        )
        rule: Any = plan.rule
        self.rule, self._looked, self._shown = rule, float("-inf"), True
        self.names, self.size = plan.clients, plan.size
        self.strides = gossip.strides(self.size)
        self.court: int = 2 * self.rule.gossip
        """The step in which sketches are sent to those that were chosen."""
        self.verdict = self.court + 1 + len(self.strides)
        with worker.precision():
            self.sketching = Sketching(worker, plan.rule)
            self.kept = FindingKept(state=worker.client, ledger=Bill(plan.size, folder=folder))
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / FILE).is_file():
                self.kept = disk.load(folder / FILE, self.kept, self._whose)
        self.looks = looks(plan)
        self.round = self.kept.t
        """The round that this peer is in; whoever drives it says so."""
        self.partners: dict[int, list[int]] = {}
        self._pair()

    def _pair(self) -> None:
        """Whom this peer meets in the phases of this search and of the one before."""
        seed, look = self.plan.training.seed, self.kept.look
        met = lambda t, phase: int(gossip.partners(seed, t, phase, self.size)[self.number])
        for i in {look, look - 1} & set(range(len(self.looks))) - set(self.partners):
            before = self.looks[i].round
            self.partners[i] = [met(before, phase) for phase in range(self.rule.gossip)]

    @property
    def _whose(self) -> dict[str, Any]:
        return {"plan": self.plan.fingerprint, "peer": self.names[self.number]}

    def _keep(self, **changes: Any) -> None:
        """On disk first: what cannot be written did not happen."""
        new = dataclasses.replace(self.kept, **changes)
        disk.save(self.folder / FILE, new, self._whose)
        self.kept = new
        self._shown = False
        self.show()

    def show(self) -> None:
        """Write what is for looking at, if it is new; nothing is read back from it."""
        if self._shown or self.kept.settled:  # settled, it is the business of rounds
            return
        if (now := time.monotonic()) - self._looked > LOOK_SECONDS:
            self._shown, self._looked = True, now
            write_json(self.folder / "status.json", self.status())

    def status(self) -> dict[str, Any]:
        """What `coterie status` shows before there are neighbours."""
        training = self.plan.training
        return {
            "name": self.plan.name,
            "peer": self.names[self.number],
            "method": self.plan.method.name,
            "metric": metric_of(training.metric, self.plan.shape.task).told(),
            "round": self.kept.t,
            "rounds": self.plan.exchanges,
            "finished": False,
            "up": self.kept.ledger.up + (0 if self.through else self.kept.up),
            "down": self.kept.ledger.down + (0 if self.through else self.kept.down),
            "scores": {},
            "neighbours": [],
            "look": self.kept.look,
            "step": f"{max(0, self.step)} of {self.verdict + 1}",
            "written": time.time(),
        }

    # -- alone -------------------------------------------------------------------------------------

    @property
    def trained(self) -> bool:
        return self.kept.t >= min(self.rule.after, self.plan.exchanges)

    def train(self) -> None:
        """One round alone; after the last the sketch is ready."""
        t, kept = self.kept.t, self.kept
        with self.worker.precision():
            if not self.trained:
                done = self.worker.work(kept.state, (), t, sending=False, whole=False)
                bill = kept.ledger.copy()
                bill.add(t, np.array([self.number]), 0, 0, done.gradients)
                self._keep(state=done.state, ledger=bill, t=t + 1)
            if self.trained and self.kept.step < 0:
                if self.kept.t == self.plan.exchanges:  # there is no round to find kin for
                    self._keep(step=self.verdict + 1)
                    return
                wire = self.sketching.encoded(self.kept.state.method_state)
                self._keep(step=0, sketch=wire)

    def look_again(self, found: Found) -> None:
        """The rounds over the graph are done: a new sketch, and a new search."""
        old = self.kept
        assert self.through
        with self.worker.precision():
            sketch = self.sketching.encoded(found.state.method_state)
        self._keep(
            **vars(FindingKept(state=found.state, ledger=found.ledger, sketch=sketch))
            | {"t": found.t, "look": old.look + 1, "step": 0}
            | {"before": Spoken(old.sketch, old.said, old.kin)}
        )
        self._pair()

    # -- steps -------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        return self.kept.step

    @property
    def stage(self) -> int:
        """Steps that a peer can have done before, in all searches."""
        return self.kept.look * (self.verdict + 2) + self.step

    @property
    def through(self) -> bool:
        """All is found."""
        return self.kept.step > self.verdict

    def _from(self, step: int) -> list[int]:
        """Who has something to say to this peer in a step; in that of courting, to whom it sends
        its sketch.
        """
        if step < self.court:
            partner = self.partners[self.kept.look][step // 2]
            return [] if partner == self.number else [partner]
        if step == self.court:
            return self.kept.wish
        if step < self.verdict:
            return [(self.number - self.strides[step - self.court - 1]) % self.size]
        return sorted({*self.kept.wish, *self.kept.suitors})

    @property
    def awaited(self) -> list[int]:
        """Who is to be asked in this step and has not answered."""
        if not 0 <= self.step <= self.verdict:
            return []
        return [k for k in self._from(self.step) if k not in self.kept.heard]

    @property
    def contacts(self) -> list[int]:
        """Who may need something of this peer after it is through, or this peer of them."""
        ring = {(self.number + way * s) % self.size for s in self.strides for way in (1, -1)}
        return sorted(({*ring, *self.kept.wish, *self.kept.suitors}) - {self.number})

    def facts(self) -> dict[str, Any]:
        """Where this peer is."""
        kept, plan = self.kept, self.plan.fingerprint
        place = {"look": kept.look, "step": kept.step, "round": self.round}
        return {"plan": plan, "number": self.number, **place}

    def question(self, k: int) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """What to ask peer k in this step."""
        frames = (self.kept.sketch,) if self.step == self.court else ()
        return self.facts() | {"want": self.step}, frames

    def _says(self, kept: FindingKept, look: Any, step: Any, k: int) -> bytes | None:
        """What this peer says to peer k in a step of a search; nothing while it cannot know, or
        where it has forgotten it.
        """
        spoken, at = (kept, kept.step) if look == kept.look else (kept.before, self.verdict + 1)
        if look not in (kept.look, kept.look - 1) or look not in self.partners or at < 0:
            return None
        if type(step) is not int or not 0 <= step <= self.verdict or step == self.court:
            return None
        if step < self.court:
            if self.partners[look][step // 2] != k:
                return None
            if step % 2 == 0:
                return spoken.sketch
            return spoken.said.get(step, b"") if at >= step else None
        if at < step:
            return None
        if step < self.verdict:
            return YES
        return YES if k in spoken.kin else NO

    def answer_quietly(
        self, k: int, facts: Mapping[str, Any], frames: tuple[bytes, ...]
    ) -> tuple[dict[str, Any], tuple[bytes, ...]] | None:
        """The same as `answer` where nothing changes; else None. Any thread may call this."""
        kept, look = self.kept, facts.get("look")
        if frames and look == kept.look and kept.step <= self.court + len(self.strides):
            return None
        wire = self._says(kept, look, facts.get("want"), k)
        given = () if wire is None else (wire,)
        sent = bool(frames) and look in (kept.look, kept.look - 1)
        return self.facts() | {"have": bool(given) or sent}, given

    def answer(
        self, k: int, facts: Mapping[str, Any], frames: tuple[bytes, ...]
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """What this peer says to a question of peer k. Raises Rejected."""
        self.check(k, facts)
        quiet = self.answer_quietly(k, facts, frames)
        if quiet is not None:
            return quiet
        self._decoded(frames[0])
        if k not in self.kept.suitors:
            self._keep(suitors=self.kept.suitors | {k: frames[0]})
        return self.facts() | {"have": True}, ()

    def check(self, k: int, facts: Mapping[str, Any]) -> None:
        """Refuse a peer with another plan, or another number than its name has."""
        if facts.get("plan") != self.plan.fingerprint:
            raise Rejected(f"{self.names[k]} has another plan; all must have the same.")
        if facts.get("number") != k:
            raise Rejected(
                f"{self.names[k]} says its number is {shown(facts.get('number'))}, but in the plan"
                f" it is {k}."
            )
        for what, most in (
            ("look", max(0, len(self.looks) - 1)),
            ("step", self.verdict + 1),
            ("round", self.plan.exchanges),
        ):
            if type(at := facts.get(what)) is not int or not -1 <= at <= most:
                raise Rejected(f"{self.names[k]} says that it is in {what} {str(at)[:40]!r}.")

    def hear(self, k: int, facts: Mapping[str, Any], frames: tuple[bytes, ...], asked: int) -> bool:
        """Peer k's answer to the question of stage `asked`; True when it is of use. Raises
        Rejected.
        """
        self.check(k, facts)
        if asked != self.stage or k not in self.awaited or facts.get("have") is not True:
            return False
        wire = b""
        if self.step != self.court:
            if len(frames) != 1:
                raise Rejected(f"an answer has {len(frames)} parts, but must have one.")
            wire = frames[0]
            self._look(wire)
        # Not on disk until the step is left: until then it can be asked for again.
        self.kept = dataclasses.replace(self.kept, heard={**self.kept.heard, k: wire})
        return True

    def _decoded(self, wire: bytes) -> Any:
        try:
            return self.sketching.decoded(wire)
        except InvalidInput as error:
            raise refuse(error) from None

    def _heard_of(self, wire: bytes) -> dict[int, Any]:
        try:
            told = gossip.heard_of(wire, self.sketching.numbers, self.rule.bits, self.size)
        except InvalidInput as error:
            raise refuse(error) from None
        if len(told) > self.rule.tell or self.number in told:
            raise Rejected(f"it tells of {len(told)}, or of this peer itself.")
        return told

    def _look(self, wire: bytes) -> None:
        """Refuse what nobody says in this step."""
        if self.step < self.court:
            self._heard_of(wire) if self.step % 2 else self._decoded(wire)
        elif wire not in ((YES, NO) if self.step == self.verdict else (YES,)):
            raise Rejected("it says neither yes nor no.")

    def go_on(self, silent: Collection[int] = ()) -> None:
        """Leave this step, with those that are awaited and silent left out."""
        assert set(self.awaited) <= set(silent), self.awaited
        step, kept = self.step, self.kept
        down = sum(map(len, kept.heard.values()))
        if step < self.court:
            changes = self._met() if step % 2 == 0 else self._told()
        elif step == self.court:
            changes = {"up": len(kept.sketch) * len(kept.wish), "wish": sorted(kept.heard)}
        elif step < self.verdict:
            changes = {"up": len(YES) if self.size > 1 else 0}
        else:
            changes = {
                "up": len(self._from(step)) * len(YES),
                "kin": [k for k in kept.kin if kept.heard.get(k) == YES],
            }
        up, down = kept.up + changes.pop("up"), kept.down + down
        ahead = {"step": step + 1, "heard": {}, "up": up, "down": down, **changes}
        after = dataclasses.replace(kept, **ahead)
        if step + 1 == self.court:
            after = dataclasses.replace(after, wish=self._chosen(after.known))
        elif step + 1 == self.verdict:
            near = {k: after.known[k] for k in after.wish} | after.suitors
            courted = after.down + sum(map(len, after.suitors.values()))
            after = dataclasses.replace(after, kin=self._chosen(near), down=courted)
        elif step == self.verdict:
            bill = kept.ledger.copy()
            bill.add(self.looks[kept.look].round, np.array([self.number]), up, down, 0)
            after = dataclasses.replace(after, ledger=bill)
        self._keep(**{f.name: getattr(after, f.name) for f in dataclasses.fields(after)})

    def _met(self) -> dict[str, Any]:
        """The partner's sketch is there: what it is to be told of others."""
        told, up = {}, len(self.kept.sketch) * len(self._from(self.step))
        for k, wire in self.kept.heard.items():
            known = {l: self._decoded(w) for l, w in self.kept.known.items()}
            chosen = gossip.told(self.rule, known, k, self._decoded(wire))
            told = {self.step + 1: gossip.passed_on(chosen, self.rule.bits)}
        known = {**self.kept.known, **self.kept.heard}
        return {"said": self.kept.said | told, "known": known, "up": up}

    def _told(self) -> dict[str, Any]:
        """The partner has told of others."""
        known = dict(self.kept.known)
        for wire in self.kept.heard.values():
            told = self._heard_of(wire)
            known |= {l: gossip.encoded(s, self.rule.bits) for l, s in told.items()}
        return {"known": known, "up": len(self.kept.said.get(self.step, b""))}

    def _chosen(self, near: Mapping[int, bytes]) -> list[int]:
        own = self._decoded(self.kept.sketch)
        return gossip.chosen(self.rule, {k: self._decoded(w) for k, w in near.items()}, own)

    def settle(self) -> None:
        """All that could need an answer of this peer are through."""
        if self.through and not self.kept.settled:
            self._keep(settled=True)

    # -- in the end --------------------------------------------------------------------------------

    def kin(self, look: int) -> list[Neighbour]:
        """Those found in the last search, or in the one before."""
        assert self.through or look == self.kept.look - 1
        kin = self.kept.kin if look == self.kept.look else self.kept.before.kin
        return [Neighbour(self.names[k], k, float(self.rule.weight)) for k in kin]

    @property
    def found(self) -> Found:
        return Found(self.kept.state, self.kept.ledger, self.kept.t)
