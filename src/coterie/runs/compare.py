"""Several methods, paired: the same splits, initial model, cohorts and batches at each seed, and
Local at equal gradient steps beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from coterie.channel import Channel
from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import make_folder, write_text
from coterie.core.metrics import Metric, OwnMetric, metric_of
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation, warn_without_test
from coterie.engine.arguments import (
    as_contender,
    as_federation,
    as_list,
    as_model,
    as_seeds,
    judged_by,
)
from coterie.engine.exchange import exchange_of
from coterie.engine.simulate import simulate
from coterie.engine.training import Training, TrainingOptions
from coterie.methods.base import Method
from coterie.methods.local import Local, equal_compute
from coterie.models.base import Model, ModelSpec
from coterie.report.comparison import Comparison, Entry
from coterie.report.imbalance import refuse_undefined
from coterie.report.outcome import Outcome
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.contender import Contender
from coterie.runs.experiment import PROTOCOLS, Experiment
from coterie.runs.grid import Begin, Planned, ended_outcomes, run_all
from coterie.runs.labels import distinct, graph_text, label_of, local_label
from coterie.runs.reporting import write_report
from coterie.runs.watching.live import planned


def with_locals(
    contenders: Sequence[Contender], everybody: bool = False, alone: Local | None = None
) -> tuple[list[tuple[str, Contender]], list[int | None]]:
    """Labelled methods, with a Local for every distinct amount of gradient work first; and for each
    the index of its Local.

    A Local that the user asked for serves those whose work it equals. With `everybody` in every
    cohort it does not matter who trains. Centralised training has no Local of its own kind to stand
    beside, but is compared with that of the first method. With `alone`, that Local stands beside
    all. A method whose clients have more than a model has a Local with that too (`Method.alone`);
    where there is one already and `alone` is given, that one.
    """
    locals_: list[Local] = []
    partner: list[int | None] = []

    def index_of(local: Local) -> int:
        local = local.replace(trains="sampled") if everybody else local
        local = type(local).from_config(
            local.to_config()
        )  # options without effect tell nothing apart
        if local not in locals_:
            locals_.append(local)
        return locals_.index(local)

    others = [c for c in contenders if not isinstance(c.method, Local)]
    for i, c in enumerate(others):
        if any(c.to_config() == o.to_config() for o in others[:i]):
            raise InvalidInput(
                f"{c.method.name} is given twice with the same options; give it once."
            )
    for c in contenders:
        if isinstance(c.method, Local):
            index_of(c.method)
    for c in others:
        equal = equal_compute(c.method) if alone is None else alone
        partner.append(None if exchange_of(c.method).pooled else index_of(equal))
        more = c.method.alone(equal)
        if alone is None or not any(type(m) is type(more) for m in locals_):
            index_of(more)
    first = next((i for i, m in enumerate(locals_) if type(m) is Local), None)
    partner = [first if p is None else p for p in partner]
    labelled: list[tuple[str, Contender]] = [
        (local_label(m, locals_), Contender(m)) for m in locals_
    ]
    labelled += [(label_of(c, others), c) for c in others]
    labels = distinct([label for label, _ in labelled], " ({})")
    labelled = [(label, c) for label, (_, c) in zip(labels, labelled, strict=True)]
    return labelled, [*range(len(locals_)), *partner]


def _needs_test_data(federation: Federation) -> None:
    if not len(federation.test):
        raise InvalidInput(
            f"{federation.name!r} has no test data, so methods cannot be compared on it; give it a"
            " test share > 0."
        )
    if federation.clients < 2:
        name = "".join(f" ({str(n)!r})" for n in federation.facts.get("clients", ()))
        raise InvalidInput(
            f"{federation.name!r} has a single client{name}, which has nobody to learn with, so"
            " there is nothing to compare; it must have at least 2."
        )


def assemble(
    title: str,
    federation: Federation,
    labelled: list[tuple[str, Contender]],
    partner: list[int | None],
    table: list[list[Outcome]],
    *,
    metric: Metric,
    protocol: str = "standard",
    graph_of: Callable[[Contender], str],
) -> Comparison:
    """`graph_of` names the graph of a method that has one."""
    entries = []
    for (label, c), outcomes, p in zip(labelled, table, partner, strict=True):
        p = p if p is None else _rival(c.method, p, labelled, table)
        why = None if p is None else next((o.collapsed for o in table[p] if o.collapsed), None)
        local = None if p is None or why else table[p]
        graph = graph_of(c) if c.method.couples else None
        entries.append(Entry(label, outcomes, local, why, graph=graph))
    return Comparison(title, federation, entries, metric, protocol=protocol)


def _rival(
    method: Method, local: int, labelled: list[tuple[str, Contender]], table: list[list[Outcome]]
) -> int:
    """The index of the Local that a method is measured against: its own, or a better one with all
    that its clients have besides each other; on validation data, or without it on test data.
    """
    more = type(method.alone(Local()))
    if isinstance(method, Local) or more is Local:
        return local
    rivals = [local, *(i for i, (_, c) in enumerate(labelled) if type(c.method) is more)]
    rivals = [i for i in rivals if not any(o.collapsed for o in table[i])]
    validated = all(o.validation is not None for i in rivals for o in table[i])
    score = lambda o: o.validation if validated else np.nanmean(o.last())
    return max(rivals, key=lambda i: np.mean([score(o) for o in table[i]]), default=local)


def named_graph(contender: Contender, graph: Graph | GraphRule | None) -> str:
    """The graph of a method in memory: its own, or else the one that is given for all."""
    if contender.graph is not None:
        return graph_text(contender.graph)
    if isinstance(graph, GraphRule):
        return f"learn: {graph.name}"
    return "complete" if graph is None else graph.name


def compare(
    methods: Sequence[Method | str | tuple[Method | str, Channel]],
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    seeds: Sequence[int] = (0,),
    graph: Graph | GraphRule | None = None,
    begin: Begin | None = None,
    protocol: str = "standard",
    metric: str | Metric | OwnMetric | None = None,
    **training: Unpack[TrainingOptions],
) -> Comparison:
    """Compare in memory.

    A method may come with a channel, as a pair, or as a `Contender` with a graph of its own.
    `metric` decides: a name, or a function as in `simulate`. Further arguments are those of
    `Training`.

    >>> import coterie
    >>> fed = coterie.load("digits", clients=4)
    >>> table = compare(["fedu"], fed, rounds=2, eval_every=2)
    >>> [row.label for row in table.rows()]
    ['Local', 'FedU']
    """
    _needs_test_data(as_federation(federation))
    listed = as_list("methods", methods, '["fedu"]')
    chosen = [m if isinstance(m, Contender) else Contender(*as_contender(m)) for m in listed]
    seeds, model = as_seeds(seeds), as_model(model)
    if protocol not in PROTOCOLS:
        raise unknown("the protocol", protocol, PROTOCOLS)
    if not chosen:
        raise InvalidInput("methods is empty, but a comparison needs at least 1.")
    if len(set(seeds)) < len(seeds):
        raise InvalidInput(f"seeds is {seeds}, but must name each seed once.")
    given = judged_by(metric, dict(training))
    options = Training.from_config(given)
    decides = metric_of(options.metric, federation.task)
    refuse_undefined(federation, decides)
    labelled, partner = with_locals(chosen, options.cohort_size(federation) == federation.clients)
    table = []
    for i, (label, contender) in enumerate(labelled):
        outcomes = []
        for j, seed in enumerate(seeds):
            progress = (
                begin(label, i * len(seeds) + j, len(labelled) * len(seeds)) if begin else None
            )
            result = simulate(
                contender.method,
                federation,
                model,
                graph=graph if contender.graph is None else contender.graph.build(federation),
                channel=contender.channel,
                progress=progress,
                keep_collapsed=True,
                **{**given, "seed": seed},
            )
            outcomes.append(Outcome.from_result(result))
        table.append(outcomes)
    return assemble(
        federation.name,
        federation,
        labelled,
        partner,
        table,
        metric=decides,
        protocol=protocol,
        graph_of=lambda c: named_graph(c, graph),
    )


def compare_into(
    experiment: Experiment,
    folder: Path,
    *,
    force: bool = False,
    begin: Begin | None = None,
    say: runs.Say = print,
    targets: Sequence[float] = (),
    budgets: Sequence[float] = (),
    jobs: int = 1,
    cluster: Scheduler | None = None,
    keep_models: bool = True,
) -> Comparison:
    """Compare into a folder: one run folder per method and seed, report.html, table.md, sites.csv,
    answer.json, recipe.json and config.toml.

    Runs that are already finished there with the same config are taken as they are, unfinished ones
    are resumed: the command can be killed and repeated. `targets` are values of the
    metric. `jobs` runs are done at a time, or as many as a `cluster` has workers. Without
    `keep_models`, a run's models are deleted once it has ended; scores, curves and bytes stay.
    """
    check_wishes(experiment, targets, budgets)
    comparison = train_all(
        experiment,
        folder,
        Doing(force, begin, say, jobs, keep_models, cluster),
    )
    write_report(comparison, experiment, folder, targets, budgets)
    return comparison


class Doing(NamedTuple):
    """How the runs of a comparison are done."""

    force: bool = False
    begin: Begin | None = None
    say: runs.Say = print
    jobs: int = 1
    keep_models: bool = True
    cluster: Scheduler | None = None


def check_wishes(
    experiment: Experiment, targets: Sequence[float], budgets: Sequence[float]
) -> None:
    """Refuse what cannot be compared, before anything is written: data without test rows, targets
    that the metric cannot reach, and budgets that buy nothing.
    """
    if not experiment.contenders:
        raise InvalidInput("the experiment names no method; give [[methods]] or --methods.")
    federation = experiment.federation()
    _needs_test_data(federation)
    experiment.training.cohort_size(federation)
    metric = metric_of(experiment.training.metric, federation.task)
    refuse_undefined(federation, metric)
    for target in targets:
        metric.check_target("--to", target)
    for budget in budgets:
        if not 0 < budget < float("inf"):
            raise InvalidInput(f"a budget is {budget:g} bytes, but must be a finite number > 0.")


class Paired(NamedTuple):
    """An experiment as it is compared: its methods and their Locals, and a run for each at every
    seed.
    """

    experiment: Experiment
    labelled: list[tuple[str, Contender]]
    partner: list[int | None]
    plan: list[Planned]

    def read(self) -> Comparison:
        """What the runs came to, from their folders; refuses those that have not ended."""
        return self.compared(ended_outcomes(self.plan))

    def compared(self, outcomes: Sequence[Outcome]) -> Comparison:
        """What the runs of the plan came to."""
        experiment, federation = self.experiment, self.experiment.federation()
        each = len(self.plan) // len(self.labelled)
        table = [list(outcomes[i : i + each]) for i in range(0, len(self.plan), each)]
        return assemble(
            experiment.name,
            federation,
            self.labelled,
            self.partner,
            table,
            metric=metric_of(experiment.training.metric, federation.task),
            protocol=experiment.protocol,
            graph_of=lambda c: graph_text(experiment.graph_of(c)),
        )


def pair(experiment: Experiment, folder: Path, alone: Local | None = None) -> Paired:
    """The runs of a comparison, not begun; `alone` as in `train_all`."""
    seeds = experiment.seeds or (experiment.training.seed,)
    federation = experiment.federation()
    everybody = experiment.training.cohort_size(federation) == federation.clients
    labelled, partner = with_locals(experiment.contenders, everybody, alone)
    plan = [
        Planned(
            label,
            label,
            experiment.single(contender, seed),
            folder / "runs" / f"{name}-seed{seed}",
        )
        for (label, contender), name in zip(labelled, slugs(labelled), strict=True)
        for seed in seeds
    ]
    return Paired(experiment, labelled, partner, plan)


def train_all(
    experiment: Experiment, folder: Path, doing: Doing, alone: Local | None = None
) -> Comparison:
    """All runs of a comparison. With `alone`, that Local, which must be among the methods, stands
    for all, and the folder may hold what led there; otherwise each method has one with its gradient
    steps and step size.
    """
    if warning := warn_without_test(experiment.federation()):
        doing.say(warning)
    paired = pair(experiment, folder, alone)
    config = folder / "config.toml"
    again = config.is_file() and config.read_text(encoding="utf-8") == experiment.to_toml()
    make_folder(folder, force=doing.force or again or alone is not None)
    write_text(config, experiment.to_toml())
    with planned(folder, [run.folder for run in paired.plan]):
        outcomes = run_all(
            paired.plan,
            jobs=doing.jobs,
            cluster=doing.cluster,
            keep_models=doing.keep_models,
            begin=doing.begin,
            say=doing.say,
            force=doing.force,
        )
    return paired.compared(outcomes)


def slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")


def slugs(labelled: Sequence[tuple[str, Contender]]) -> list[str]:
    """The names of the methods' folders, no two alike."""
    return distinct([slug(label) for label, _ in labelled], "-{}")
