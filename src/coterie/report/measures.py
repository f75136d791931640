"""Two more tables of a comparison: how evenly clients are served, and what a score costs in bytes,
rounds and gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import NamedTuple

import numpy as np
from rich.table import Table

from coterie.core.metrics import Metric
from coterie.report.budget import Cost, at_budget, mean_scores, to_target
from coterie.report.comparison import Comparison, Entry
from coterie.report.fairness import Fairness
from coterie.report.units import bytes_text, seconds_text, value_text


class Sheet(NamedTuple):
    """A table as texts, for the terminal, Markdown and HTML alike."""

    title: str
    note: str
    columns: list[str]
    lines: list[list[str]]

    def rich(self) -> Table:
        table = Table(
            title=self.title, title_justify="left", caption=self.note, caption_justify="left"
        )
        for i, name in enumerate(self.columns):
            table.add_column(name, justify="right" if i else "left")
        for line in self.lines:
            table.add_row(*line)
        return table

    def markdown(self) -> str:
        rows = [self.columns, ["---"] * len(self.columns), *self.lines]
        return (
            f"## {self.title}\n\n{self.note}\n\n"
            + "\n".join("| " + " | ".join(row) + " |" for row in rows)
            + "\n"
        )


def _ends(comparison: Comparison, entry: Entry) -> list[float]:
    """The mean score after the round that counts, per seed."""
    return [float(mean_scores(o, comparison.members)[o.counted]) for o in entry.outcomes]


def fairness_sheet(comparison: Comparison) -> Sheet:
    """Of the view that a method is judged by, mean over seeds."""
    metric, lines = comparison.metric, []
    members = comparison.members if comparison.members.any() else slice(None)
    for entry in comparison.entries:
        if entry.collapsed:
            continue
        local = entry.local or entry.outcomes
        found = [
            Fairness.of(o.last()[members], o.losses[o.view][o.counted][members], lo.last()[members])
            for o, lo in zip(entry.outcomes, local, strict=True)
        ]
        mean = lambda name: float(np.nanmean([getattr(f, name) for f in found]))  # noqa: B023
        correlations = [f.collaboration for f in found]
        lines.append(
            [
                entry.label,
                value_text(float(np.mean(_ends(comparison, entry))), metric),
                f"{metric.unit**2 * mean('score_variance'):.3g}",
                value_text(mean("worst"), metric),
                value_text(mean("best"), metric),
                f"{mean('jain'):.4f}",
                f"{mean('entropy'):.4f}",
                f"{mean('loss_variance'):.3g}",
                f"{mean('loss_jain'):.3f}",
                (
                    ""
                    if entry.local is entry.outcomes or np.isnan(correlations).all()
                    else f"{np.nanmean(correlations):z.3f}"
                ),
            ]
        )
    columns = [
        "method",
        "mean",
        "variance",
        "worst 10%",
        "best 10%",
        "Jain",
        "entropy",
        "loss variance",
        "loss Jain",
        "with Local",
    ]
    note = (
        f"{metric.heading[0].upper()}{metric.heading[1:]}; over clients, mean of seeds. Jain"
        " and entropy are 1 when all are served alike; with Local:"
        " correlation with what a client reaches alone."
    )
    return Sheet("Fairness", note, columns, lines)


def bytes_sheet(
    comparison: Comparison, targets: Sequence[float], budgets: Sequence[float]
) -> Sheet:
    """What each target (a score) costs (bytes up and down, rounds, gradients of all clients) and
    what each budget buys.
    """
    metric, lines = comparison.metric, []
    for entry in comparison.entries:
        if entry.collapsed:
            continue
        line = [entry.label]
        for target in targets:
            line.append(
                _cost(
                    [
                        [to_target(o, target, way, comparison.members) for way in ("up", "down")]
                        for o in entry.outcomes
                    ]
                )
            )
        line += [
            value_text(
                float(
                    np.mean(
                        [at_budget(o, budget, members=comparison.members) for o in entry.outcomes]
                    )
                ),
                metric,
            )
            for budget in budgets
        ]
        lines.append(line)
    columns = [
        "method",
        *(f"to {value_text(t, metric)}" for t in targets),
        *(f"for {bytes_text(b)}" for b in budgets),
    ]
    note = (
        f"To a target ({metric.better}): bytes up + bytes down (rounds, gradients) of all clients"
        " together until their mean score first met it at an evaluation, mean of seeds; a"
        " broadcast counts once per receiver. For a budget: the last mean score that so many"
        " bytes, up and down, pay for."
    )
    return Sheet("What a score costs", note, columns, lines)


def time_sheet(comparison: Comparison, targets: Sequence[float]) -> Sheet | None:
    """How long the rounds would take on the network of the experiment; None when it has none."""
    metric, lines = comparison.metric, []
    for entry in comparison.entries:
        found = [
            (o.predicted, o.rounds, mean_scores(o, comparison.members))
            for o in entry.outcomes
            if o.predicted is not None
        ]
        if entry.collapsed or not found:
            continue
        each = [
            seconds_text(float(np.mean([s[-1] / max(1, r[-1]) for s, r, _ in found]))),
            seconds_text(float(np.mean([s[-1] for s, _, _ in found]))),
        ]
        for target in targets:
            met = [
                float(s[reached[0]])
                for s, _, scores in found
                if len(reached := np.flatnonzero(scores >= target))
            ]
            some = "" if len(met) == len(found) else f" ({len(met)} of {len(found)} seeds)"
            each.append(seconds_text(float(np.mean(met))) + some if met else "never")
        lines.append([entry.label, *each])
    columns = ["method", "a round", "all rounds", *(f"to {value_text(t, metric)}" for t in targets)]
    note = (
        "On the experiment's network, from the byte bill; mean of seeds. To a target: until the"
        " clients' mean score first met it at an evaluation."
    )
    return Sheet("Predicted time", note, columns, lines) if lines else None


def _cost(costs: list[list[Cost]]) -> str:
    met = [c for c in costs if c[0].bytes is not None]
    if not met:
        return "never"
    up, down = (float(np.mean([c[i].bytes for c in met if c[i].bytes is not None])) for i in (0, 1))
    rounds, gradients = (
        float(np.mean([getattr(c[0], name) for c in met])) for name in ("rounds", "gradients")
    )
    some = "" if len(met) == len(costs) else f"; {len(met)} of {len(costs)} seeds"
    return f"{bytes_text(up)} + {bytes_text(down)} ({rounds:.0f}, {gradients:.0f}{some})"


def default_targets(comparison: Comparison) -> list[float]:
    """What training alone reaches, and half a point below the best method: at every seed, so that
    whoever sets a target meets it.
    """
    whole = [(e, min(_ends(comparison, e))) for e in comparison.entries if not e.collapsed]
    alone = [end for e, end in whole if e.local is e.outcomes]
    near = max((end for _, end in whole), default=0.0)
    near -= 0.005 if comparison.metric.percent else 0.0
    return sorted({_rounded_down(t, comparison.metric) for t in [*alone[:1], near]})


def _rounded_down(value: float, metric: Metric) -> float:
    """To what a column's head can show, and never past what was reached.

    >>> from coterie.core.metrics import ACCURACY, MSE
    >>> _rounded_down(0.87659, ACCURACY), _rounded_down(-0.123456, MSE)
    (0.8765, -0.124)
    """
    exact = Decimal(repr(float(value)))
    if not exact.is_finite() or not exact:
        return float(value)
    exponent = -4 if metric.percent else exact.adjusted() - 2
    return float(exact.quantize(Decimal(1).scaleb(exponent), ROUND_FLOOR))


def sheets(
    comparison: Comparison, targets: Sequence[float] = (), budgets: Sequence[float] = ()
) -> list[Sheet]:
    """Fairness, and the byte bill at the given targets and budgets (or at sensible ones).

    Targets are values of the metric, as people know them.
    """
    wanted = [comparison.metric.value(target) for target in targets]
    targets = wanted or default_targets(comparison)
    timed = time_sheet(comparison, targets)
    return [
        fairness_sheet(comparison),
        bytes_sheet(comparison, targets, budgets),
        *([timed] if timed else []),
    ]
