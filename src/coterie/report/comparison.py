"""Several methods on the same clients, batches and seeds, side by side: is each better than
training alone, for whom, and at what price?
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.frames import frame, html_table
from coterie.core.metrics import ACCURACY, Metric
from coterie.coupling.kinds import oracle_sentence
from coterie.data.federation import Federation
from coterie.engine.exchange import exchange_of
from coterie.report import imbalance, learnt, words
from coterie.report.answer import Answer, answer_of
from coterie.report.counted import best_on_test
from coterie.report.findings import Findings, ReferenceRow
from coterie.report.gain import Counted, Gain, judge, measure
from coterie.report.outcome import Outcome

if TYPE_CHECKING:
    import pandas

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean ± standard deviation over seeds."""

    mean: float
    std: float
    count: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        a = np.asarray(values, float)
        return cls(float(a.mean()), float(a.std(ddof=1)) if len(a) > 1 else 0.0, len(a))


@dataclasses.dataclass(frozen=True)
class ReportRow:
    """One line of the table: a method's view, over all seeds."""

    label: str
    view: str
    mean: Spread
    weighted: Spread
    worst: Spread
    variance: Spread
    gain: Gain | None
    up: float
    down: float
    seconds: float
    compile_seconds: float
    collapsed: str | None = None
    collapsed_at: int | None = None
    poor: Spread | None = None
    """The mean over clients that were down-sampled."""
    newcomers: Spread | None = None
    """The view's score on clients that were held out, after adapting."""
    best_test: Spread | None = None
    """The view's mean at its best round on test data; only under `protocol = "paper"`."""
    predicted: Spread | None = None
    """Seconds that all rounds would take on the network of the experiment."""


def worst_tenth(scores: Array) -> float:
    """Mean of the lowest tenth of the clients (at least one)."""
    s = np.sort(scores[~np.isnan(scores)])
    return float(s[: max(1, -(-len(s) // 10))].mean())


def weighted(scores: Array, samples: Array) -> float:
    has = ~np.isnan(scores)
    return float(np.average(scores[has], weights=samples[has]))


@dataclasses.dataclass
class Entry:
    """A method in the comparison: its outcomes by seed, and the Local that it is measured
    against.
    """

    label: str
    outcomes: list[Outcome]
    local: list[Outcome] | None
    local_collapsed: str | None = None
    """Why there is no Local to measure against: it diverged."""
    validation: float | None = None
    """A validation score of more rows than the runs' own, e.g. by cross-validation."""
    graph: str | None = None
    """The client graph, in a word; None: there is none."""

    @property
    def collapsed(self) -> str | None:
        return next((o.collapsed for o in self.outcomes if o.collapsed), None)

    @property
    def federated(self) -> bool:
        return exchange_of(self.outcomes[0].method).sends

    @property
    def measured(self) -> bool:
        """Whether there is a gain to speak of."""
        return self.local is not None and self.local is not self.outcomes and not self.collapsed


@dataclasses.dataclass(repr=False)
class Comparison:
    """All entries on one federation."""

    title: str
    federation: Federation
    entries: list[Entry]
    metric: Metric = ACCURACY
    minimum: int = 1
    """The test rows that a client must have at every seed to count in means and tests."""
    prior: float = 0.0
    """A client with n test rows counts n / (n + prior) in means; 0: all count alike. This is the
    weight of a random-effects mean if prior is the ratio of the variance of a row's difference to
    that of clients' gains; a fixed one, so that weights do not depend on what is tested.
    """
    references: Sequence[ReferenceRow] = ()
    """Models off the shelf, beside the methods."""
    findings: Findings | None = None
    protocol: str = "standard"
    """"paper": the best round on test data is reported beside what counts."""

    def __repr__(self) -> str:
        seeds = max((len(entry.outcomes) for entry in self.entries), default=0)
        many = f"{len(self.entries)} methods, {seeds} seed{'s' if seeds != 1 else ''}"
        labels = ", ".join(entry.label for entry in self.entries)
        return (
            f"<Comparison {self.title!r}: {self.federation.clients:,} clients, {many} ({labels});"
            " .answer() says what came of it>"
        )

    def _repr_html_(self) -> str:
        from coterie.report.tables import COLUMNS, cells

        table = [cells(row, self.metric) for row in self.rows()]
        used = [i for i in range(len(COLUMNS)) if any(line[i] for line in table)]
        rows = [[line[i] for i in used] for line in table]
        answer = f"<p><b>{html.escape(str(self.answer()))}</b></p>"
        title = f"{self.title}: test {self.metric.heading}"
        return answer + html_table(title, [COLUMNS[i] for i in used], rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A row per method, view, seed and client after the last round: score (the larger the
        better: errors are negated), loss, test samples, and the gain over the Local of the same
        seed. Needs pandas.
        """
        keys = ("method", "view", "seed", "client", "score", "loss", "samples", "gain over Local")
        made: dict[str, list[Any]] = {key: [] for key in keys}
        names = [self.client_name(k) for k in range(self.federation.clients)]
        for entry in self.entries:
            for i, outcome in enumerate(entry.outcomes):
                alone = entry.local[i].last() if entry.local is not None else np.nan
                for view in outcome.method.model_views:
                    score = outcome.last(view)
                    columns = (
                        *([v] * len(names) for v in (entry.label, view, outcome.seed)),
                        names,
                        score.tolist(),
                        outcome.losses[view][-1].tolist(),
                        np.asarray(outcome.samples).tolist(),
                        (score - alone).tolist(),
                    )
                    for key, values in zip(keys, columns, strict=True):
                        made[key] += values
        return frame(made)

    @cached_property
    def members(self) -> Array:
        """The clients that all means and gains are over: those with a score, and enough test rows,
        at every seed and of every method.
        """
        whole = [o for e in self.entries if not e.collapsed for o in e.outcomes]
        if not whole:
            return np.zeros(self.federation.clients, bool)
        scored = ~np.isnan(np.stack([o.last() for o in whole])).any(0)
        return np.asarray(scored & (self.tested >= self.minimum))

    @cached_property
    def tested(self) -> Array:
        """The fewest test rows that each client has at any seed."""
        return np.min([o.samples for e in self.entries for o in e.outcomes], axis=0)

    @cached_property
    def weight(self) -> Array | None:
        """What each client counts in means; None: all alike."""
        return self.tested / (self.tested + self.prior) if self.prior else None

    @property
    def counted(self) -> Counted:
        return Counted(self.members, self.metric, self.weight)

    def mean(self, scores: Array) -> float:
        """The mean over the clients that count, each with its weight."""
        return self._mean(scores[np.flatnonzero(self.members)], self.members)

    def apart(self) -> list[tuple[int, int]]:
        """The clients that have test rows but too few to count, and how many they have."""
        few = np.flatnonzero((self.tested > 0) & (self.tested < self.minimum))
        return [(int(k), int(self.tested[k])) for k in few]

    def rows(self) -> list[ReportRow]:
        """The table: a row per view of every method."""
        return [row for _, row in self.judged()]

    def judged(self) -> list[tuple[Entry, ReportRow]]:
        """The rows and whose they are; tests are made once."""
        return self._judged

    @cached_property
    def _judged(self) -> list[tuple[Entry, ReportRow]]:
        measured = {
            (i, view): measure(entry.outcomes, entry.local, view, self.counted)
            for i, entry in enumerate(self.entries)
            if entry.local is not None and entry.measured and self.members.any()
            for view in entry.outcomes[0].method.model_views
        }
        # A method is judged by its first view: one hypothesis per method.
        first = [key for key in measured if key[1] == self.entries[key[0]].outcomes[0].view]
        gains = {key: m.gain for key, m in measured.items()}
        gains |= dict(zip(first, judge([measured[key] for key in first]), strict=True))
        return [
            (entry, self._row(entry, view, gains.get((i, view))))
            for i, entry in enumerate(self.entries)
            for view in entry.outcomes[0].method.model_views
        ]

    def _row(self, entry: Entry, view: str, gain: Gain | None) -> ReportRow:
        first, outcomes = entry.outcomes[0], entry.outcomes
        members = self.members
        if entry.collapsed or not members.any():
            members = np.ones(len(first.last()), bool)
        scores = [o.last(view)[members] for o in outcomes]
        mean_of = lambda name: float(np.mean([getattr(o, name) for o in outcomes]))
        poor = [np.isin(np.arange(len(members)), o.poor) & members for o in outcomes]
        several = len(first.method.model_views) > 1
        return ReportRow(
            label=f"{entry.label} ({view})" if several else entry.label,
            view=view,
            mean=Spread.over([self._mean(s, members) for s in scores]),
            weighted=Spread.over(
                [weighted(s, o.samples[members]) for s, o in zip(scores, outcomes, strict=True)]
            ),
            worst=Spread.over([worst_tenth(s) for s in scores]),
            variance=Spread.over([float(np.nanvar(s)) for s in scores]),
            gain=gain,
            up=float(np.mean([o.up[-1] for o in outcomes])),
            down=float(np.mean([o.down[-1] for o in outcomes])),
            seconds=mean_of("seconds"),
            compile_seconds=mean_of("compile_seconds"),
            collapsed=entry.collapsed,
            collapsed_at=next((o.collapsed_at for o in outcomes if o.collapsed), None),
            poor=(
                Spread.over(
                    [
                        float(np.nanmean(o.last(view)[who]))
                        for o, who in zip(outcomes, poor, strict=True)
                    ]
                )
                if all(who.any() for who in poor)
                else None
            ),
            newcomers=(
                Spread.over([o.newcomers[view] for o in outcomes])
                if all(view in o.newcomers for o in outcomes)
                else None
            ),
            best_test=(
                Spread.over([best_on_test(o, view, members) for o in outcomes])
                if self.protocol == "paper"
                else None
            ),
            predicted=(
                Spread.over([float(o.predicted[-1]) for o in outcomes if o.predicted is not None])
                if first.predicted is not None
                else None
            ),
        )

    def _mean(self, scores: Array, members: Array) -> float:
        """Of the given clients, without those that have no score."""
        has = ~np.isnan(scores)
        part = None if self.weight is None else self.weight[members][has]
        return float(np.average(scores[has], weights=part)) if has.any() else float("nan")

    def majority(self) -> float | None:
        """What always answering a client's most frequent class would score, mean over clients;
        metrics of probabilities are given the shares of the classes in the client's training data.
        """
        if self.federation.task != "classification":
            return None
        each = imbalance.majority_scores(self.federation, self.metric)
        chosen = self.mean(each) if self.members.any() else float(np.nanmean(each))
        return None if np.isnan(chosen) else chosen

    def client_name(self, k: int) -> str:
        """A client as its owner calls it."""
        names = self.federation.facts.get("clients")
        return (
            str(names[k])
            if names is not None and len(names) == self.federation.clients
            else f"client {k}"
        )

    def left_out(self) -> list[str]:
        """The clients that have test rows at some seeds but not at all: no mean is over them."""
        tested = self._tested()
        partly = np.any(tested, axis=0) & ~np.all(tested, axis=0)
        return [self.client_name(int(k)) for k in np.flatnonzero(partly)]

    def undefined(self) -> list[str]:
        """The clients with test rows at every seed for which the metric has no meaning all the
        same: no mean is over them.
        """
        enough = self.tested >= self.minimum
        without = np.all(self._tested(), axis=0) & enough & ~self.members
        return [self.client_name(int(k)) for k in np.flatnonzero(without)]

    def _tested(self) -> Array:
        """Who was tested at all, by run: every client that was has a loss."""
        runs = [o for e in self.entries if not e.collapsed for o in e.outcomes]
        if not runs:
            return np.zeros((1, self.federation.clients), bool)
        return np.stack([~np.isnan(o.losses[o.view][-1]) for o in runs])

    def notes(self) -> list[str]:
        """What a reader of the scores should know: who is in no mean and why, whether the metric
        suits the classes, and whether the graph is one that nobody could know.
        """
        graphs = dict.fromkeys(e.graph for e in self.entries if e.graph is not None)
        oracles = [oracle_sentence(kind) for kind in graphs]
        told = [*imbalance.notes(self), *learnt.sentences(self)]
        return [*told, *(sentence for sentence in oracles if sentence is not None)]

    def answer(self) -> Answer:
        """Should these clients federate, with which method, who gains and who loses, and what does
        it cost? `str` gives it in one paragraph. The method is chosen on validation data.
        """
        return self._answer

    @cached_property
    def _answer(self) -> Answer:
        return answer_of(self)

    def verdict(self) -> list[str]:
        """A few sentences per method: does it help, and whom does it hurt?"""
        return words.verdict(self)
