"""Results as plain values: what `--json` prints. Scores are values of the metric, as people know
them; gains are differences of scores, positive where the metric got better.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from coterie.core.metrics import Metric
from coterie.report.attacked import Grid
from coterie.report.comparison import Comparison, ReportRow, Spread
from coterie.report.gain import Gain, Verdict


def comparison_plain(comparison: Comparison) -> dict[str, Any]:
    """The table of a comparison, its notes and its answer."""
    metric = comparison.metric
    majority = comparison.majority
    return {
        "title": comparison.title,
        "metric": {"name": metric.name, "title": metric.title, "better": metric.better},
        "majority_class": majority,
        "methods": [_row(row, metric, comparison) for row in comparison.rows()],
        "notes": comparison.notes(),
        "answer": comparison.answer().to_config(),
    }


def _value(spread: Spread | None, metric: Metric) -> dict[str, Any] | None:
    if spread is None:
        return None
    return {"value": metric.value(spread.mean), "std": spread.std, "seeds": spread.count}


def _row(row: ReportRow, metric: Metric, comparison: Comparison) -> dict[str, Any]:
    made: dict[str, Any] = {"method": row.label, "view": row.view}
    if row.collapsed:
        return made | {"collapsed": row.collapsed, "collapsed_at": row.collapsed_at}
    scores = {
        "mean": row.mean,
        "by_samples": row.weighted,
        "worst_tenth": row.worst,
        "data_poor": row.poor,
        "newcomers": row.newcomers,
        "best_test_round": row.best_test,
    }
    made |= {key: _value(spread, metric) for key, spread in scores.items() if spread is not None}
    if row.gain is not None:
        made["gain"] = _gain(row.gain, comparison)
    made |= {"variance": row.variance.mean, "bytes_up": row.up, "bytes_down": row.down}
    return made | {"seconds": row.seconds, "compile_seconds": row.compile_seconds}


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    return None if verdict is None else {"word": verdict.word, "p": verdict.p}


def _gain(gain: Gain, comparison: Comparison) -> dict[str, Any]:
    names = lambda those: [comparison.client_name(k) for k in those]
    made: dict[str, Any] = {
        "mean": gain.mean,
        "low": gain.low,
        "high": gain.high,
        "largest_loss": gain.largest_loss,
        "clients": gain.count,
        "these_clients": _verdict(gain.these),
        "another_client": _verdict(gain.others),
    }
    if gain.clients is not None:
        made |= {"helped": names(gain.clients.helped), "hurt": names(gain.clients.hurt)}
    return made


def grid_plain(grid: Grid) -> dict[str, Any]:
    """Methods under attack: a line for every method, attack and share of malicious clients."""
    lines = []
    for (label, attack, fraction), cell in grid.cells.items():
        line: dict[str, Any] = {"method": label, "attack": attack, "malicious": fraction}
        if cell.spread is not None:
            line["mean"] = _value(cell.spread, grid.metric)
        line |= {"change": cell.change, "collapsed_at": cell.collapses}
        lines.append(line | ({"lies_not_sent": list(cell.unsent)} if any(cell.unsent) else {}))
    return {
        "title": grid.title,
        "metric": {"name": grid.metric.name, "better": grid.metric.better},
        "seeds": grid.seeds,
        "which_round": grid.which_round,
        "cells": lines,
    }


def run_plain(folder: Path, metric: Metric) -> dict[str, Any]:
    """The evaluation of a run that counts: a line for every split and view."""
    rounds = pq.read_table(folder / "rounds.parquet").to_pylist()
    status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    last = max((r["round"] for r in rounds), default=0)
    counts = last if status.get("kept") is None else status["kept"]
    lines = [
        {
            "split": r["split"],
            "view": r["view"],
            "mean": metric.value(r["score"]),
            "by_samples": metric.value(r["weighted_score"]),
            "loss": r["loss"],
            "clients": r["clients"],
            "bytes_up": r["up"],
            "bytes_down": r["down"],
        }
        for r in rounds
        if r["round"] == counts
    ]
    return {
        "folder": folder,
        "round": counts,
        "rounds": last,
        "metric": {"name": metric.name, "better": metric.better},
        "scores": lines,
    }
