"""The answer of a comparison: should these clients federate, with which method, who gains, who
loses, what does it cost, how sure is that, and what would change it?

"Do not federate" is a candidate like any other. Everything is measured against the best Local of
the table, not against the Local that happens to have a method's own settings. The choice is made on
validation data, so one test on test data is enough for what was chosen; without validation data
there is no verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coterie.methods.local import Local
from coterie.report.gain import Gain, Verdict, judge, measure
from coterie.report.units import bytes_text
from coterie.report.words import Words, nothing, p_text

if TYPE_CHECKING:
    from coterie.report.comparison import Comparison, Entry

Word = Literal["federate", "do not federate", "no clear difference", "cannot be answered"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What is recommended, and the sentences that say why."""

    word: Word
    method: str | None
    """The label of the federated method that the answer is about."""
    graph: str | None
    """Its client graph, in a word; None: it has none."""
    local: str | None
    """The label of the Local that it was measured against."""
    gain: Gain | None
    verdict: Verdict | None
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def to_config(self) -> dict[str, Any]:
        """Plain values, for answer.json."""
        g, v = self.gain, self.verdict
        found = {
            "answer": self.word,
            "method": self.method,
            "graph": self.graph,
            "against": self.local,
            "gain": None if g is None else g.mean,
            "low": None if g is None else g.low,
            "high": None if g is None else g.high,
            "p": None if v is None else v.p,
            "test": None if v is None else v.word,
            "clients": None if g is None else g.count,
            "text": str(self),
        }
        if g is not None and g.clients is not None:
            found["clearly_helped"] = len(g.clients.helped)
            found["clearly_hurt"] = len(g.clients.hurt)
        return found


def _validation(entry: Entry) -> float | None:
    """The validation score of tuning, or else the mean of the runs'; None if a run has none."""
    if entry.validation is not None:
        return entry.validation
    found = [o.validation for o in entry.outcomes]
    return None if any(v is None for v in found) else float(np.mean(found))  # type: ignore[arg-type]


def best_local(comparison: Comparison) -> Entry | None:
    """The Local that everything is measured against: best on validation data, or without it on
    test data, which is hardest on the others.
    """
    alone = [
        e for e in comparison.entries if isinstance(e.outcomes[0].method, Local) and not e.collapsed
    ]
    if not alone:
        return None
    if all(_validation(e) is not None for e in alone):
        return max(alone, key=lambda e: _validation(e) or 0.0)
    return max(alone, key=lambda e: scored(comparison, e))


def scored(comparison: Comparison, entry: Entry) -> float:
    """The mean test score over clients and seeds."""
    return float(np.mean([comparison.mean(o.last()) for o in entry.outcomes]))


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen among the federated methods and Local, and on what."""

    entry: Entry
    local: Entry
    gain: Gain
    verdict: Verdict
    federate: bool
    """False: Local is better on validation data than every federated method."""
    candidates: int
    validated: bool


def choose(comparison: Comparison) -> Choice | None:
    """The best federated method, and whether training alone is better; None if there is nothing to
    choose from.
    """
    local = best_local(comparison)
    federated = [e for e in comparison.entries if e.federated and not e.collapsed]
    if local is None or not federated or not comparison.members.any():
        return None
    scores = {id(e): _validation(e) for e in [*federated, local]}
    validated = all(s is not None for s in scores.values())
    score: Any = lambda e: scores[id(e)] if validated else scored(comparison, e)
    entry = max(federated, key=score)
    view = entry.outcomes[0].view
    measured = measure(entry.outcomes, local.outcomes, view, comparison.counted)
    gain = judge([measured])[0]
    assert gain.these is not None
    free = validated or len(federated) == 1
    verdict = gain.these if free else Verdict.none("")
    better = not validated or score(entry) > score(local)
    return Choice(entry, local, gain, verdict, better, len(federated), validated)


def answer_of(comparison: Comparison) -> Answer:
    """The answer in sentences; `words._nothing` says why there is none."""
    choice = choose(comparison)
    if choice is None:
        return Answer("cannot be answered", None, None, None, None, None, (nothing(comparison),))
    says = _Says(comparison, choice)
    sentences = [
        says.head(),
        says.chosen(),
        says.graph(),
        says.others(),
        says.singles(),
        says.runs(),
        says.cost(),
        *says.around(),
    ]
    return Answer(
        says.word,
        choice.entry.label,
        choice.entry.graph,
        choice.local.label,
        choice.gain,
        choice.verdict,
        tuple(s for s in sentences if s),
    )


def _in_words(graph: str | None) -> str:
    """A graph in a sentence."""
    kind, _, rule = str(graph).partition(": ")
    if kind != "learn":
        return f"the graph {kind!r}" if kind != "complete" else "the complete graph"
    return f"a graph that is learnt while training (rule {rule})"


class _Says:
    """The sentences of one answer."""

    def __init__(self, comparison: Comparison, choice: Choice) -> None:
        self.comparison, self.choice = comparison, choice
        self.words = Words(comparison)

    @property
    def word(self) -> Word:
        c = self.choice
        if c.verdict.p is None:
            return "cannot be answered"
        if c.verdict.word == "hurts" or (not c.federate and c.verdict.word != "helps"):
            return "do not federate"
        return "federate" if c.verdict.word == "helps" else "no clear difference"

    def _compared(self) -> str:
        c = self.choice
        alone = (
            "training alone" if c.local.label == "Local" else f"training alone ({c.local.label})"
        )
        return (
            f"{c.entry.label} {self.words.scores(scored(self.comparison, c.entry))} on test data,"
            f" {alone} {self.words.value(scored(self.comparison, c.local))}:"
            f" {self.words.size(c.gain, c.verdict.p)}"
        )

    def head(self) -> str:
        c, who = self.choice, self.words.clients(self.choice.gain.count)
        start = {
            "federate": f"Federate: it helps {who}.",
            "no clear difference": f"Federating makes no clear difference to {who}.",
            "cannot be answered": "No verdict.",
        }.get(
            self.word,
            f"Do not federate: it hurts {who}."
            if c.verdict.word == "hurts"
            else f"Do not federate: {who} do as well alone.",
        )
        return f"{start} {self._compared()}."

    def chosen(self) -> str:
        c = self.choice
        if not c.validated and c.candidates > 1:
            return (
                f"There is no validation data{self.words.for_metric}, so the method was chosen on"
                " the very data that it would be tested on. The other methods and their verdicts"
                " are listed one by one."
            )
        if c.verdict.p is None:
            return f"Whether these clients gain cannot be answered: {c.verdict.why}."
        if not c.federate:
            best = "no federated method was" if c.candidates > 1 else f"{c.entry.label} was not"
            near = f" {c.entry.label} came nearest." if c.candidates > 1 else ""
            return f"On validation data {best} better than training alone.{near}"
        if c.candidates > 1:
            return f"It is the best of {c.candidates} federated methods on validation data."
        return ""

    def graph(self) -> str:
        """Over which graph, and what the same method has over another."""
        c, title = self.choice, self.choice.entry.outcomes[0].method.title
        if c.entry.graph is None or not c.validated:
            return ""
        score = lambda e: self.words.value(_validation(e) or 0.0)
        same = lambda e: e.outcomes[0].method.title == title and not e.collapsed
        others = [
            f"{score(e)} over {_in_words(e.graph)}"
            for e in self.comparison.entries
            if same(e) and e.graph not in (None, c.entry.graph) and _validation(e) is not None
        ]
        than = f", and {', '.join(others)}" if others else ""
        mine = f"{title} has {score(c.entry)} on validation data over {_in_words(c.entry.graph)}"
        return f"{mine}{than}."

    def others(self) -> str:
        c = self.choice
        if c.verdict.p is None or c.gain.others is None:
            return ""
        return self.words.others(c.gain.others)

    def singles(self) -> str:
        return self.words.singles(self.choice.gain)

    def runs(self) -> str:
        return self.words.runs(self.choice.gain)

    def cost(self) -> str:
        outcomes, n = self.choice.entry.outcomes, self.comparison.federation.clients
        cost = float(np.mean([(o.up[-1] + o.down[-1]) / n for o in outcomes]))
        return f"{self.choice.entry.label} costs each client {bytes_text(cost)}, sent and received."

    def around(self) -> Sequence[str]:
        """What stands beside the answer: clients that do not count, other models, what-ifs."""
        return [s for f in (self.apart, self.sight, self.shelf, self.whatif) if (s := f())]

    def apart(self) -> str:
        few = self.comparison.apart()
        if not few:
            return ""
        names = ", ".join(f"{self.comparison.client_name(k)} ({n})" for k, n in few[:6])
        more = f" and {len(few) - 6} more" if len(few) > 6 else ""
        return (
            f"Too few test rows to count, fewer than {self.comparison.minimum}: {names}{more};"
            " these clients are in no mean."
        )

    def sight(self) -> str:
        """How small a difference could be seen."""
        g = self.choice.gain
        if self.word not in ("no clear difference", "do not federate") or g.low is None:
            return ""
        if self.choice.verdict.word == "hurts" or g.high is None:
            return ""
        half = self.words.gain((g.high - g.low) / 2).lstrip("+") + self.words.points
        return (
            f"With these test rows a gain of about {half} could be seen; four times as many rows"
            " would halve that."
        )

    def shelf(self) -> str:
        """Whether something off the shelf is better than the best here."""
        here = max(scored(self.comparison, e) for e in (self.choice.entry, self.choice.local))
        better = [r for r in self.comparison.references if r.mean(self.comparison) > here]
        if not better:
            return ""
        best = max(better, key=lambda r: r.mean(self.comparison))
        number = self.words.value(best.mean(self.comparison))
        what = (
            "it needs all data in one place"
            if best.pooled
            else "another model may matter more than federating"
        )
        return f"scikit-learn's {best.label}, has {number}, better than the best here; {what}."

    def whatif(self) -> str:
        found = self.comparison.findings
        if found is None:
            return ""
        out = []
        for one in found.unlike:
            name = self.comparison.client_name(one.client)
            size = self.words.gain(one.against_with.mean) + self.words.points
            rest = self.words.gain(one.over_local.mean) + self.words.points
            if one.against_with.p <= 0.05 and one.against_with.mean > 0:
                out.append(
                    f"{name} is unlike all others and pulls them down: without it they score {size}"
                    f" more ({p_text(one.against_with.p)}), {rest} over training alone (validation"
                    " data)."
                )
            else:
                out.append(
                    f"{name} is unlike all others: their models fail there, and its model fails at"
                    f" theirs. Without it the others would change by {size} (validation data)."
                )
        if found.half is not None and found.whole is not None:
            half, whole = (self.words.gain(t.mean) for t in (found.half, found.whole))
            out.append(
                f"With half the training rows everywhere the gain would be {half} instead of"
                f" {whole} (validation data)."
            )
        if found.hungry:
            each = [
                f"{self.comparison.client_name(k)} ({self.words.gain(m)}{self.words.points})"
                for k, m in found.hungry[:3]
            ]
            out.append(
                f"More rows would help first at {', '.join(each)}: so much better is its own model"
                " with all of its rows than with half of them (validation data)."
            )
        for kind, tested in found.graphs:
            size = self.words.gain(tested.mean) + self.words.points
            out.append(
                f'With the graph "{kind}", which reads everybody\'s labels, FedU would gain {size}'
                " over training alone (validation data)."
            )
        if found.cut:
            out.append(f"There was no time for {'; '.join(found.cut)}. More --minutes give it.")
        return " ".join(out)
