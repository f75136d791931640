"""The table that ends a single run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.table import Table

from coterie.core.metrics import Metric
from coterie.report.units import bytes_text


def run_table(folder: Path, metric: Metric) -> Table:
    """The evaluation of a run folder that counts, per split and view, in values of the metric."""
    rounds = pq.read_table(folder / "rounds.parquet").to_pylist()
    status = json.loads((folder / "status.json").read_text())
    last = max((r["round"] for r in rounds), default=0)
    kept = status.get("kept")
    title, last = f"after round {last}", last if kept is None else kept
    if kept is not None:
        title = f"after round {kept} of {status['rounds']}, the best on validation data"
        if kept == status["rounds"]:
            title += " (still improving: has not converged)"
    caption = f"{metric.title}: {metric.better}"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in ("split", "model", "clients' mean", "by samples", "loss", "clients", "up", "down"):
        table.add_column(name, justify="left" if name in ("split", "model") else "right")
    for r in [*(r for r in rounds if r["round"] == last), *_paper(folder, rounds)]:
        table.add_row(
            r["split"],
            r["view"],
            f"{metric.value(r['score']):z.4f}",
            f"{metric.value(r['weighted_score']):z.4f}",
            f"{r['loss']:z.4f}",
            str(r["clients"]),
            bytes_text(r["up"]),
            bytes_text(r["down"]),
        )
    return table


def _paper(folder: Path, rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Under `protocol = "paper"`: per view the round that is best on test data, and that it is."""
    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    tested = [r for r in rounds if r["split"] == "test"]
    if config.get("protocol") != "paper" or not tested:
        return []
    views = dict.fromkeys(r["view"] for r in tested)
    best = [max((r for r in tested if r["view"] == v), key=lambda r: r["score"]) for v in views]
    return [
        r | {"split": f"test, at its best round there ({r['round']}), as papers do"} for r in best
    ]
