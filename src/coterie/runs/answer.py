"""From somebody's own table to an answer: tune all methods alike, train, look at what somebody
would try instead and at what would change the answer, and report.

The test rows are fixed before anything else and are looked at once, at the end: settings and method
are chosen on the other rows, and so are the what-ifs.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.core.errors import InvalidInput, notice
from coterie.core.files import make_folder, write_json
from coterie.core.metrics import Metric, OwnMetric, metric_of
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation
from coterie.engine.arguments import as_federation, as_list, judged_by
from coterie.engine.many import simulate_many
from coterie.engine.training import Training
from coterie.methods.local import Local
from coterie.models.base import Model, ModelSpec
from coterie.report.comparison import Comparison, Entry
from coterie.report.findings import Findings, ReferenceRow
from coterie.report.outcome import Outcome
from coterie.runs import whatif
from coterie.runs.compare import (
    Doing,
    assemble,
    check_wishes,
    named_graph,
    pair,
    train_all,
    with_locals,
)
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.labels import label_of
from coterie.runs.minutes import Minutes
from coterie.runs.presets import COMPARED, own_batch, own_tables
from coterie.runs.references import references
from coterie.runs.reporting import write_report
from coterie.runs.run import Say
from coterie.runs.tuning.folder import tune_into
from coterie.runs.tuning.found import Tuned
from coterie.runs.tuning.options import Tuning
from coterie.runs.tuning.tune import tune_methods

FEWEST_ROWS = 5
"""Test rows that a client must have to count in the answer."""
PRIOR = 20.0
"""A client with n test rows counts n / (n + PRIOR) (`Comparison.prior`)."""
FOLDS = 5
FEW = 1000
"""With fewer validation rows than this, methods are tuned by cross-validation."""
TUNING, SHELF = 0.5, 0.15
"""Which parts of the minutes go into tuning and into models off the shelf."""
SEEDS = (0, 1, 2)


class Wishes(NamedTuple):
    """What somebody asked for besides the data."""

    minutes: float = 2.0
    """About how long all may take; 0: nothing is tuned."""
    targets: Sequence[float] = ()
    budgets: Sequence[float] = ()


def answer_into(
    experiment: Experiment, folder: Path, doing: Doing, wishes: Wishes | None = None
) -> Comparison:
    """Tune, compare and answer into a folder; the command can be killed and repeated."""
    wishes = wishes or Wishes()
    if not 0 <= wishes.minutes < float("inf"):
        raise InvalidInput(f"--minutes is {wishes.minutes:g}, but must be a number ≥ 0.")
    minutes = Minutes(wishes.minutes)
    check_wishes(experiment, wishes.targets, wishes.budgets)
    experiment = experiment.with_(seeds=experiment.seeds or SEEDS)
    known = (folder / "tuning" / "config.toml").is_file() or (folder / "config.toml").is_file()
    make_folder(folder, force=doing.force or known)
    tuned = _tuned(experiment, folder / "tuning", doing, wishes.minutes)
    alone, experiment = None, experiment.with_(tune=None)
    if tuned:
        experiment = experiment.with_(contenders=tuple(t.contender for t in tuned))
        alone = _plain_local([t.contender for t in tuned])
    comparison, experiment, cut = _trained(experiment, folder, doing, alone, minutes)
    cut = (*_cut_trials(tuned, experiment.training.rounds), *cut)
    entries = _validated(comparison.entries, tuned)
    comparison = dataclasses.replace(comparison, entries=entries, minimum=FEWEST_ROWS, prior=PRIOR)
    comparison = _beside(comparison, experiment, folder, doing, minutes)
    comparison = _told(comparison, cut)
    recipe = {
        "kind": "answer",
        "cut": list(cut),
        "one_local": alone is not None,
        "validation": {e.label: e.validation for e in entries if e.validation is not None},
    }
    write_report(comparison, experiment, folder, wishes.targets, wishes.budgets, recipe)
    if late := minutes.late():
        doing.say(late)
    return comparison


def answer_again(experiment: Experiment, folder: Path, recipe: dict[str, Any]) -> Comparison:
    """The comparison of a folder that `answer_into` filled, from what lies there; nothing is
    trained.
    """
    alone = _plain_local(experiment.contenders) if recipe.get("one_local") else None
    comparison = pair(experiment, folder, alone).read()
    validation = recipe.get("validation") or {}
    entries = [
        dataclasses.replace(e, validation=validation.get(e.label)) for e in comparison.entries
    ]
    kept = _read(folder / "beside.json", None)
    rows, findings = kept if kept is not None else ((), None)
    comparison = dataclasses.replace(
        comparison,
        entries=entries,
        minimum=FEWEST_ROWS,
        prior=PRIOR,
        references=rows,
        findings=findings,
    )
    return _told(comparison, recipe.get("cut") or ())


def answer(
    federation: Federation,
    methods: Sequence[str] = COMPARED,
    model: Model | ModelSpec | str = "mlr",
    *,
    minutes: float = 2.0,
    seeds: Sequence[int] = SEEDS,
    graph: Graph | GraphRule | None = None,
    metric: str | Metric | OwnMetric | None = None,
    **training: Any,
) -> Comparison:
    """The same in memory: tune, train, answer. Nothing is written, and there are neither models off
    the shelf nor what-ifs. `minutes` 0: nothing is tuned.

    >>> import coterie
    >>> fed = coterie.load("digits", clients=4)
    >>> found = coterie.answer(fed, ["fedavg"], minutes=0, seeds=[0], rounds=2)
    >>> found.answer().method
    'FedAvg'
    """
    federation = as_federation(federation)
    given = {"rounds": 60, "batch_size": own_batch(federation), **training}
    given = judged_by(metric, {"eval_every": given["rounds"], **given})
    names = ["local", *as_list("methods", methods, '["fedu"]')]
    chosen = [
        Contender.from_config(table)
        for table in own_tables(
            names, federation, model, Training.from_config(given), graph is None
        )
    ]
    tuned: list[Tuned] = []
    if minutes:
        folds: dict[str, Any] = {"folds": FOLDS} if len(federation.validation) < FEW else {}
        tuned = tune_methods(
            federation,
            chosen,
            model=model,
            graph=graph,
            training=given,
            minutes=TUNING * minutes,
            decay=True,
            **folds,
        )
        chosen = [t.contender for t in tuned]
    everybody = Training.from_config(given).cohort_size(federation) == federation.clients
    labelled, partner = with_locals(chosen, everybody, _plain_local(chosen))
    rows = []
    for _, (method, channel, own) in labelled:
        near = graph if own is None else own.build(federation)
        results = simulate_many(
            [method],
            federation,
            model,
            seeds=list(seeds),
            graph=near if method.couples else None,
            channel=channel,
            keep_collapsed=True,
            **given,
        )
        rows.append([Outcome.from_result(r) for r in results])
    comparison = assemble(
        federation.name,
        federation,
        labelled,
        partner,
        rows,
        metric=metric_of(given.get("metric"), federation.task),
        graph_of=lambda c: named_graph(c, graph),
    )
    entries = _validated(comparison.entries, tuned)
    return dataclasses.replace(comparison, entries=entries, minimum=FEWEST_ROWS, prior=PRIOR)


def _plain_local(contenders: Sequence[Contender]) -> Local:
    return next(c.method for c in contenders if type(c.method) is Local)


def _tuned(experiment: Experiment, folder: Path, doing: Doing, minutes: float) -> list[Tuned]:
    """The methods at their best values; none, if nothing is tuned."""
    if not minutes:
        return []
    try:
        import optuna  # noqa: F401
    except ImportError:
        notice(
            "Optuna is not installed, so all methods keep their default settings, and an answer"
            " from untuned methods may be wrong; install it with: pip install 'coterie[tune]'"
        )
        return []
    federation = experiment.federation()
    options: dict[str, Any] = {"minutes": TUNING * minutes, "decay": True}
    if len(federation.validation) < FEW:
        options["folds"] = FOLDS
    if experiment.tune is not None:
        options |= experiment.tune.to_config()
    asked = experiment.with_(tune=Tuning.from_config(options))
    board = doing.begin if hasattr(doing.begin, "overall") else None
    return tune_into(
        asked,
        folder,
        force=doing.force,
        jobs=doing.jobs,
        cluster=doing.cluster,
        board=board,  # type: ignore[arg-type]
        say=doing.say,
    )


def _trained(
    experiment: Experiment, folder: Path, doing: Doing, alone: Local | None, minutes: Minutes
) -> tuple[Comparison, Experiment, tuple[str, ...]]:
    """All methods with the first seed, and with as many others as there is time for; gives the
    experiment with these seeds, and what was cut.
    """
    seeds = experiment.seeds
    done = all(run.ended for run in pair(experiment, folder, alone).plan)
    # Who does not tune has time; a cluster's workers share the runs nobody knows how.
    if done or alone is None or doing.cluster is not None or len(seeds) < 2:
        return train_all(experiment, folder, doing, alone), experiment, ()
    doing = doing._replace(say=_once(doing.say))
    first = experiment.with_(seeds=seeds[:1])
    comparison = train_all(first, folder, doing, alone)
    runs = [o for entry in comparison.entries for o in entry.outcomes]
    each = sum(max(0.0, o.seconds - o.compile_seconds) for o in runs) / doing.jobs
    count = next(n for n in range(len(seeds), 0, -1) if n == 1 or minutes.allows((n - 1) * each))
    some = experiment.with_(seeds=seeds[:count])
    if count > 1:
        comparison = train_all(some, folder, doing, alone)
    cut = tuple(f"seed {seed}" for seed in seeds[count:])
    return comparison, some, cut


def _once(say: Say) -> Say:
    """Nothing is said twice."""
    said: set[str] = set()

    def once(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            say(sentence)

    return once


def _cut_trials(tuned: Sequence[Tuned], rounds: int) -> tuple[str, ...]:
    """Methods whose values are those of a trial that time cut short, if there are any."""
    short = [t for t in tuned if t.best.state == "cut"]
    if not short:
        return ()
    least = min(min(t.best.rounds) for t in short)
    return (
        f"whole trials of {len(short)} of {len(tuned)} methods (their values are the best after"
        f" round {least} of {rounds} or later)",
    )


def _told(comparison: Comparison, cut: Sequence[str]) -> Comparison:
    """The comparison with what there was no time for."""
    found = comparison.findings
    if found is None or not cut:
        return comparison
    return dataclasses.replace(
        comparison, findings=dataclasses.replace(found, cut=(*cut, *found.cut))
    )


def _validated(entries: Sequence[Entry], tuned: list[Tuned]) -> list[Entry]:
    """Entries with the validation scores that tuning found, which are of more rows than those of a
    run.
    """
    chosen = [t.contender for t in tuned]
    scores = {label_of(t.contender, chosen): t.score for t in tuned}
    return [dataclasses.replace(e, validation=scores.get(e.label)) for e in entries]


def _beside(
    comparison: Comparison, experiment: Experiment, folder: Path, doing: Doing, minutes: Minutes
) -> Comparison:
    """The comparison with models off the shelf and what-ifs; kept in a file for the next time,
    unless there was no scikit-learn, or something was cut.
    """
    file, key = folder / "beside.json", experiment.fingerprint() + experiment.data_hash()
    key += "" if importlib.util.find_spec("sklearn") else ", without scikit-learn"
    found = None if doing.force else _read(file, key)
    if found is None or found[1].cut:
        seconds = min(60 * SHELF * max(minutes.given, 1.0), minutes.left)
        rows = _references(comparison, doing, seconds)
        findings = whatif.findings(comparison, experiment, minutes)
        found = rows, findings
        write_json(file, {"of": key, **_plain(rows, findings)})
    rows, findings = found
    return dataclasses.replace(comparison, references=rows, findings=findings)


def _plain(rows: Sequence[ReferenceRow], findings: Findings) -> dict[str, Any]:
    return {
        "references": [row.to_config() for row in rows],
        "findings": findings.to_config(),
    }


def _read(file: Path, key: str | None) -> tuple[list[ReferenceRow], Findings] | None:
    """What an earlier command found; of the same experiment, if a `key` says of which."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if key is not None and kept["of"] != key:
            return None
        rows = [ReferenceRow.from_config(row) for row in kept["references"]]
        return rows, Findings.from_config(kept["findings"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _references(comparison: Comparison, doing: Doing, seconds: float) -> list[ReferenceRow]:
    federation = comparison.federation
    try:
        found = references(federation, seconds=seconds, say=doing.say)
    except InvalidInput as error:
        notice(str(error))
        return []
    test, metric = federation.test, comparison.metric
    out = []
    for r in found:
        outputs = np.exp(r.outputs) if federation.task == "classification" else r.outputs
        scores = metric.scores(outputs, test.y, test.offsets)
        out.append(ReferenceRow(r.label, r.pooled, scores))
    return out
