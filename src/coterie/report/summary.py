"""The table that ends a single run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from rich.table import Table

from coterie.report.units import bytes_text


def run_table(folder: Path) -> Table:
    """The last evaluation of a run folder, per split and view."""
    rounds = pq.read_table(folder / "rounds.parquet").to_pylist()
    last = max((r["round"] for r in rounds), default=0)
    table = Table(title=f"after round {last}", title_justify="left")
    for name in ("split", "model", "clients' mean", "by samples", "loss", "clients", "up", "down"):
        table.add_column(name, justify="left" if name in ("split", "model") else "right")
    for r in rounds:
        if r["round"] == last:
            table.add_row(
                r["split"],
                r["view"],
                f"{r['score']:z.4f}",
                f"{r['weighted_score']:z.4f}",
                f"{r['loss']:z.4f}",
                str(r["clients"]),
                bytes_text(r["up"]),
                bytes_text(r["down"]),
            )
    return table
