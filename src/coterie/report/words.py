"""What a comparison says, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.core.metrics import Metric
from coterie.report.counted import converged
from coterie.report.gain import Gain, Verdict
from coterie.report.units import gain_text, value_text

if TYPE_CHECKING:
    from coterie.report.comparison import Comparison, ReportRow

_HOW = (
    "How to read this. These clients: sign-flips of the paired differences on their test rows; the"
    " 95% interval holds the mean gains that this test does not reject, for each method by itself."
    " Another client: sign-flips over clients. With several seeds both allow for chance between"
    " training runs. p-values are corrected for the number of methods (Holm). Single clients: an"
    " exact paired test on their own test rows in these training runs, corrected for the number of"
    " clients (Benjamini–Hochberg)."
)


def how(metric: Metric) -> str:
    """How verdicts come about, by this metric."""
    parts = [_HOW]
    if not metric.rowwise:
        parts.append(
            f"The {metric.title} is not a mean over test rows: its differences are what changes"
            " when two models exchange their predictions of a row."
        )
    if not metric.higher:
        parts.append(
            f"Of the {metric.title} smaller is better; a gain is positive where it got better."
        )
    return " ".join(parts)


def p_text(p: float) -> str:
    """A p-value for people.

    >>> p_text(0.0001), p_text(0.04321), p_text(1.0)
    ('p < 0.001', 'p = 0.043', 'p = 1')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


class Words:
    """The words for one comparison: its unit and the names of its clients."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.metric = comparison.metric
        self.points = " points" if self.metric.percent else ""

    @staticmethod
    def clients(count: int) -> str:
        return f"these {count} clients" if count > 1 else "this client"

    def value(self, score: float) -> str:
        return value_text(score, self.metric)

    def gain(self, difference: float) -> str:
        return gain_text(difference, self.metric)

    def scores(self, score: float) -> str:
        """'scores 93.10', or what else it has how much of."""
        if self.metric.name == "accuracy":
            return f"scores {self.value(score)}"
        percent = "%" if self.metric.percent else ""
        return f"has the {self.metric.title} {self.value(score)}{percent} ({self.metric.better})"

    @property
    def for_metric(self) -> str:
        """Which validation data there is none of."""
        return "" if self.metric.rowwise else f" for which the {self.metric.title} is defined"

    def some(self, clients: Sequence[int]) -> str:
        names = [self.comparison.client_name(k) for k in clients[:5]]
        more = ", …" if len(clients) > 5 else ""
        return f" ({', '.join(names)}{more})" if names else ""

    def size(self, g: Gain, p: float | None) -> str:
        """'+1.20 points (95% interval +0.30 to +2.10, p = 0.01)'."""
        facts = []
        if g.low is not None and g.high is not None:
            low, high = (self.gain(v) for v in (g.low, g.high))
            facts.append(f"95% interval {low} to {high}")
        if p is not None:
            facts.append(p_text(p))
        known = f" ({', '.join(facts)})" if facts else ""
        return f"{self.gain(g.mean)}{self.points}{known}"

    def others(self, verdict: Verdict) -> str:
        if verdict.p is None:
            return (
                f"Whether another client like these would gain cannot be answered: {verdict.why}."
            )
        p = p_text(verdict.p)
        return {
            "helps": f"Another client like these would gain too ({p}).",
            "hurts": f"Another client like these would lose ({p}).",
        }.get(verdict.word, f"Whether another client like these would gain is not clear ({p}).")

    def singles(self, g: Gain) -> str:
        if g.clients is None:
            return ""
        c = g.clients
        return (
            f"Clearly helped: {len(c.helped)} of {g.count} clients{self.some(c.helped)}; clearly"
            f" hurt: {len(c.hurt)}{self.some(c.hurt)}; cannot tell: {len(c.unclear)}."
        )

    def runs(self, g: Gain) -> str:
        """What is said of training runs: of one only that it is one."""
        if g.seeds == 1:
            seed = self.comparison.entries[0].outcomes[0].seed
            return (
                f"This is about one training run (seed {seed}); what another seed would give is not"
                " known."
            )
        if g.clear_in_these_runs:
            return (
                f"The difference is clear in these {g.seeds} training runs, but they are too few or"
                " too unlike to say so of other seeds."
            )
        return ""

    def extreme(self, g: Gain) -> str:
        what = "largest loss" if g.largest_loss < 0 else "smallest gain"
        loss = self.gain(g.largest_loss)
        return f"The {what} is {loss} ({self.comparison.client_name(g.worst_client)})."

    def of_row(self, row: ReportRow, *, others: bool = True) -> str:
        """A method in a few sentences; perhaps without those on other clients."""
        g = row.gain
        if row.collapsed:
            return f"{row.label}: collapsed ({row.collapsed})"
        assert g is not None
        against = "against training alone with equal gradient steps"
        if g.these is None or g.others is None:
            return (
                f"{row.label}: {self.size(g, None)} {against}; not tested, since the method is"
                f" judged by its other model. {self.extreme(g)}"
            )
        what = self.size(g, g.these.p)
        if g.these.p is None:
            head = (
                f"{row.label}: {what} {against}. Whether {self.clients(g.count)} gain cannot be"
                f" answered: {g.these.why}."
            )
        else:
            verb = {"helps": "helps", "hurts": "hurts"}.get(
                g.these.word, "makes no clear difference to"
            )
            head = f"{row.label} {verb} {self.clients(g.count)}: {what} {against}."
        sentences = [
            head,
            self.others(g.others) if others else "",
            self.singles(g),
            self.extreme(g),
        ]
        if g.seeds > 1:
            sentences.insert(1, self.runs(g))
        return " ".join(sentence for sentence in sentences if sentence)


def verdict(comparison: Comparison) -> list[str]:
    """A few sentences per method: does it help, and whom does it hurt?"""
    words, rows = Words(comparison), comparison.rows()
    asked = [r.gain.others for r in rows if r.gain is not None and r.gain.others is not None]
    open_ = all(other.p is None for other in asked)  # then it is said once
    out = [words.of_row(r, others=not open_) for r in rows if r.collapsed or r.gain is not None]
    for entry in comparison.entries:
        if entry.local_collapsed and not entry.collapsed:
            out.append(
                f"{entry.label}: its gain is not known, because training alone with equal gradient"
                " steps diverged."
            )
    if asked and open_:
        out.append(words.others(asked[0]))
    tested = [r.gain.these for r in rows if r.gain is not None and r.gain.these is not None]
    tested = [these for these in tested if these.p is not None]
    if len(tested) > 1:
        out.append(
            f"These p-values are corrected for {len(tested)} methods (Holm); an answer about the"
            " one method that validation data chose is one test, and is not."
        )
    out += converged(comparison)
    single = [r.gain for r in rows if r.gain is not None and r.gain.seeds == 1]
    return [*out, words.runs(single[0])] if single else out


def nothing(comparison: Comparison) -> str:
    """Why there is no answer."""
    whole = [e for e in comparison.entries if e.federated and not e.collapsed]
    if not whole:
        return "No federated method ran to its end, so there is nothing to say about federating."
    why = next((e.local_collapsed for e in whole if e.local_collapsed), None)
    if why:
        return (
            "Training alone with equal gradient steps diverged, so there is nothing to compare the"
            f" federated methods with. {why}"
        )
    return (
        "No client has test rows at every seed, so there is nothing to say about federating."
        if not comparison.members.any()
        else "There is no Local to compare with, so there is nothing to say about federating."
    )
