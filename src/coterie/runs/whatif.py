"""What would change the answer: fewer rows, one client less, another graph.

Each question is answered by training again and looking at validation rows, so that the test rows
stay unseen. What is found is a hint, not a verdict: the method was chosen on the same rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.coupling.graph import Graph
from coterie.coupling.graph import build as build_graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation, Split, pack
from coterie.engine.evaluate import to_device
from coterie.engine.simulate import Result, simulate
from coterie.engine.training import Training
from coterie.engine.transfer import Transfer, transfer
from coterie.models.base import Model, ModelSpec
from coterie.report.answer import choose
from coterie.report.comparison import Comparison, Entry
from coterie.report.findings import Findings, LeftOut
from coterie.report.outcome import Outcome
from coterie.report.significance import (
    LEVEL,
    Rows,
    Tested,
    benjamini_hochberg,
    of_each_client,
    of_these_sites,
)
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.labels import label_of
from coterie.runs.minutes import Minutes

Array = NDArray[Any]
UNLIKE = 2
"""At most so many clients that are unlike all others are left out to see what that changes."""


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """The setting that what-ifs are trained in: validation rows stand in the place of test rows."""

    federation: Federation
    model: Model | ModelSpec
    graph: Callable[[Federation], Graph | GraphRule]
    training: Training
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls,
        federation: Federation,
        model: Model | ModelSpec,
        graph: Callable[[Federation], Graph | GraphRule],
        training: Training,
        seeds: Sequence[int],
    ) -> Rehearsal:
        """Without any test rows; models of the last round count."""
        none = Split(
            federation.test.x[:0], federation.test.y[:0], np.zeros_like(federation.test.offsets)
        )
        unseen = dataclasses.replace(federation, test=federation.validation, validation=none)
        return cls(unseen, model, graph, training, tuple(seeds))

    def with_(self, federation: Federation) -> Rehearsal:
        return dataclasses.replace(self, federation=federation)

    def run(
        self, contender: Contender, seed: int, graph: Graph | GraphRule | None = None
    ) -> Result:
        method, channel, own = contender
        if graph is None and method.couples:
            graph = (self.graph if own is None else own.build)(self.federation)
        options = {**self.training.to_config(), "seed": seed, "eval_every": self.training.rounds}
        for key in ("checkpoint_every", "keep", "patience"):
            options.pop(key, None)
        return simulate(
            method,
            self.federation,
            self.model,
            graph=graph if method.couples else None,
            channel=channel,
            keep_collapsed=True,
            **options,
        )

    def outcomes(
        self, contender: Contender, graph: Graph | GraphRule | None = None
    ) -> list[Outcome]:
        return [Outcome.from_result(self.run(contender, seed, graph)) for seed in self.seeds]


def paired(mine: Sequence[Outcome], other: Sequence[Outcome]) -> list[Rows] | None:
    """Differences row by row, seed by seed; None if a run collapsed."""
    found = []
    for a, b in zip(mine, other, strict=True):
        if a.rows is None or b.rows is None:
            return None
        difference = a.rows.scores[a.view].astype(float) - b.rows.scores[b.view].astype(float)
        found.append(Rows(a.rows.client, difference))
    return found if found and len(found[0].client) else None


def gain(mine: Sequence[Outcome], alone: Sequence[Outcome]) -> Tested | None:
    """Paired on the same rows; None if a run collapsed."""
    found = paired(mine, alone)
    return None if found is None else of_these_sites(found)


def hungry(whole: Sequence[Outcome], half: Sequence[Outcome]) -> tuple[tuple[int, float], ...]:
    """Clients that alone clearly do better with all of their rows than with half of them (exact
    paired tests, Benjamini–Hochberg over clients), and by how much, the largest first.
    """
    found = paired(whole, half)
    if found is None:
        return ()
    clients = [int(k) for k in np.unique(found[0].client)]
    means, p = of_each_client(found, clients)
    clear = (benjamini_hochberg(p) <= LEVEL) & (means > 0)
    named = [(k, float(m)) for k, m, c in zip(clients, means, clear, strict=True) if c]
    return tuple(sorted(named, key=lambda one: -one[1]))


def halved(federation: Federation, seed: int = 0) -> Federation:
    """Half of every client's training rows (at least one)."""
    rng = np.random.default_rng([seed, 0x4A1F])
    parts = []
    for k in range(federation.clients):
        x, y = federation.train.client(k)
        kept = np.sort(rng.permutation(len(y))[: max(1, len(y) // 2)])
        parts.append((x[kept], y[kept]))
    return dataclasses.replace(federation, train=pack(parts))


def likeness(rehearsal: Rehearsal, local: Contender) -> Transfer:
    """How well every client's own model does at the others, on their training rows."""
    simulator = rehearsal.run(local, rehearsal.seeds[0]).simulator
    held = to_device(rehearsal.federation.train, simulator.template.dtype)
    return transfer(simulator.spec.learner, simulator.all_models(), held)


def leave_out(
    rehearsal: Rehearsal,
    contender: Contender,
    known: tuple[Sequence[Outcome], Sequence[Outcome]],
    client: int,
) -> LeftOut | None:
    """Train without one client and compare at the others: with training with it, and alone, which
    are `known`.
    """
    with_it, alone = known
    n = rehearsal.federation.clients
    others = np.setdiff1d(np.arange(n), [client])
    without = rehearsal.with_(rehearsal.federation.subset(others)).outcomes(contender)
    for outcome in without:  # their numbers among all
        if outcome.rows is not None:
            outcome.rows = outcome.rows._replace(client=others[outcome.rows.client])
    against, over = gain(without, _only(with_it, others)), gain(without, _only(alone, others))
    return None if against is None or over is None else LeftOut(client, against, over)


def _only(outcomes: Sequence[Outcome], clients: Array) -> list[Outcome]:
    """The same outcomes with the rows of some clients."""
    out = []
    for outcome in outcomes:
        rows = outcome.rows
        if rows is not None:
            kept = np.isin(rows.client, clients)
            scores = {view: values[kept] for view, values in rows.scores.items()}
            rows = rows._replace(client=rows.client[kept], row=rows.row[kept], scores=scores)
        out.append(dataclasses.replace(outcome, rows=rows))
    return out


def findings(comparison: Comparison, experiment: Experiment, minutes: Minutes) -> Findings:
    """What would change the answer. When the minutes are over, no further question is begun; those
    that were not asked are named.
    """
    choice = choose(comparison)
    federation = comparison.federation
    if choice is None or not len(federation.validation) or not comparison.metric.rowwise:
        return Findings()
    seeds = (experiment.seeds or (experiment.training.seed,))[:1]
    rehearsal = Rehearsal.of(
        federation, experiment.model, experiment.graph.build, experiment.training, seeds
    )
    mine, local = (_contender(experiment, e) for e in (choice.entry, choice.local))
    if minutes.over:
        return Findings(cut=("what would change the answer",))
    alone, together = rehearsal.outcomes(local), rehearsal.outcomes(mine)
    found, cut = Findings(whole=gain(together, alone)), list[str]()
    for k in likeness(rehearsal, local).unlike()[:UNLIKE]:
        if minutes.over:
            cut.append(f"leaving out {comparison.client_name(k)}")
        elif (left := leave_out(rehearsal, mine, (together, alone), k)) is not None:
            found = dataclasses.replace(found, unlike=(*found.unlike, left))
    if minutes.over:
        cut.append("half the training rows")
    else:
        half = rehearsal.with_(halved(rehearsal.federation))
        by_half = half.outcomes(local)
        found = dataclasses.replace(
            found, half=gain(half.outcomes(mine), by_half), hungry=hungry(alone, by_half)
        )
    asked = _by_labels(rehearsal, experiment)
    if asked is not None and minutes.over:
        cut.append("the graph of shared labels")
    elif asked is not None and (tested := gain(rehearsal.outcomes(*asked), alone)) is not None:
        found = dataclasses.replace(found, graphs=(("similar", tested),))
    return dataclasses.replace(found, cut=tuple(cut))


def _by_labels(rehearsal: Rehearsal, experiment: Experiment) -> tuple[Contender, Graph] | None:
    """FedU and the graph of shared labels, where that is not the complete one: what knowing
    everybody's labels would be worth.
    """
    fedu = next((c for c in experiment.contenders if c.method.name == "fedu"), None)
    n = rehearsal.federation.clients
    if fedu is None or n < 4 or rehearsal.federation.task != "classification":
        return None
    near = build_graph("similar", rehearsal.federation)
    if near.weights.nnz == n * (n - 1) and len(set(near.weights.data.tolist())) == 1:
        return None
    return fedu, near


def _contender(experiment: Experiment, entry: Entry) -> Contender:
    """The method of an entry, with its channel and graph."""
    for contender in experiment.contenders:
        if label_of(contender, experiment.contenders) == entry.label:
            return contender
    method = entry.outcomes[0].method
    return next((c for c in experiment.contenders if c.method == method), Contender(method))
