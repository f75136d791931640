"""The tables of a run folder: metrics per evaluation and per client, the ledger, timings, and at
the end the score of every test row.

Written in parts, joined at the end.

A part belongs to a checkpoint; after a kill, parts newer than the checkpoint are dropped and
written again. Everything but the timings is the same, bit for bit, however often the run was
interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.core.errors import InvalidInput
from coterie.core.files import write_table, writing
from coterie.core.ledger import COLUMNS
from coterie.engine.row_scores import RowScores, row_scores
from coterie.engine.simulate import Simulator, Snapshot

TABLES = ("rounds", "clients", "ledger", "timing")


class Records:
    """Collects rows and writes them as parts."""

    def __init__(self, run: Path, simulator: Simulator) -> None:
        self.run, self.parts, self.simulator = run, run / "parts", simulator
        self.parts.mkdir(exist_ok=True)
        self.cores = time.process_time()
        self._clear()

    def _clear(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.timings: list[tuple[int, float, float, float]] = []

    def add(self, snapshot: Snapshot, seconds: float, compile_seconds: float) -> None:
        self.snapshots.append(snapshot)
        cores = time.process_time() - self.cores
        self.timings.append((snapshot.round, seconds, compile_seconds, cores))

    def write(self, t: int) -> None:
        """One part per table for everything since the last part."""
        views = self.simulator.method.model_views
        always = self.simulator.metric.rowwise
        rounds: dict[str, list[Any]] = {
            k: []
            for k in (
                "round",
                "split",
                "view",
                "score",
                "weighted_score",
                "loss",
                "clients",
                "up",
                "down",
                "gradients",
            )
        }
        clients: dict[str, list[Any]] = {
            k: [] for k in ("round", "split", "view", "client", "samples", "score", "loss")
        }
        for s in self.snapshots:
            for split, scores in s.scores.items():
                w = self.simulator.scored(split)
                has = w > 0
                for i, view in enumerate(views):
                    score, loss = scores.score[i], scores.loss[i]
                    # Where the metric has no meaning for some clients, the mean is over the others.
                    met = has if always else has & ~np.isnan(score)
                    row = (
                        s.round,
                        split,
                        view,
                        score[met].mean() if met.any() else np.nan,
                        np.average(score[met], weights=w[met]) if met.any() else np.nan,
                        loss[has].mean(),
                        int(met.sum()),
                    )
                    for key, value in zip(rounds, (*row, s.up, s.down, s.gradients), strict=True):
                        rounds[key].append(value)
                    n = int(has.sum())
                    ids = np.flatnonzero(has)
                    columns = (
                        np.full(n, s.round),
                        np.full(n, split),
                        np.full(n, view),
                        ids,
                        w[has],
                        score[has],
                        loss[has],
                    )
                    for key, column in zip(clients, columns, strict=True):
                        clients[key].append(column)
        write_table(self.parts / f"{t:08d}.rounds.parquet", rounds)
        joined = {k: np.concatenate(v) if v else np.zeros(0) for k, v in clients.items()}
        write_table(self.parts / f"{t:08d}.clients.parquet", joined)
        ledger = self.simulator.ledger.take()
        write_table(
            self.parts / f"{t:08d}.ledger.parquet",
            {name: ledger[:, i] for i, name in enumerate(COLUMNS)},
        )
        timing = np.array(self.timings, float).reshape(-1, 4)
        columns_of_time = {
            "round": timing[:, 0].astype(int),
            "seconds": timing[:, 1],
            "compile_seconds": timing[:, 2],
            "core_seconds": timing[:, 3],
        }
        write_table(self.parts / f"{t:08d}.timing.parquet", columns_of_time)
        self._clear()

    def drop_after(self, t: int) -> None:
        """Forget parts that are newer than the checkpoint that was restored."""
        for path in self.parts.glob("*.parquet"):
            if int(path.name.split(".")[0]) > t:
                path.unlink()

    def join(self) -> None:
        """The parts as one table each, in the run folder."""
        for name in TABLES:
            tables = [pq.read_table(p) for p in sorted(self.parts.glob(f"*.{name}.parquet"))]
            tables = [t for t in tables if t.num_rows] or tables[:1]
            if not tables:
                raise InvalidInput(
                    f"the folder {str(self.run)!r} has lost its parts of {name}.parquet; start the"
                    " run anew."
                )
            with writing(self.run / f"{name}.parquet") as temporary:
                # Parts of an earlier version may lack a column.
                joined = pa.concat_tables(tables, promote_options="default")
                pq.write_table(joined, temporary)


ROWS = "rows.parquet"


def write_rows(run: Path, simulator: Simulator) -> None:
    """The score of every test row, per view, after the round that counts; they stay when models
    are dropped. Where the metric is not a mean over rows: what the models gave, and the truth.
    """
    found = row_scores(simulator)
    if found is None:
        return
    views, count = list(found.outputs or found.scores), len(found.client)
    table = {
        "round": np.full(count * len(views), simulator.t),
        "view": pa.array(np.repeat(views, count)).dictionary_encode(),
        "client": np.tile(found.client, len(views)),
        "row": np.tile(found.row, len(views)),
    }
    if found.outputs is None or found.y is None:
        table["score"] = np.concatenate([found.scores[view] for view in views])
    else:
        outputs = np.concatenate([found.outputs[view] for view in views])
        y = np.concatenate([found.y.reshape(count, -1)] * len(views))
        table |= {f"output_{i}": column for i, column in enumerate(outputs.T)}
        table |= {f"y_{i}": column for i, column in enumerate(y.T)}
    write_table(run / ROWS, table)


def read_rows(run: Path, views: Sequence[str]) -> RowScores | None:
    """What `write_rows` wrote; None where there is no such file. Of outputs only those of the first
    view, by which a method is judged.
    """
    if not (run / ROWS).is_file():
        return None
    table = pq.read_table(run / ROWS)
    view_of = np.asarray(table["view"].to_pylist())
    column = lambda name, view: table[name].to_numpy()[view_of == view]
    if "score" not in table.column_names:
        several = lambda kind: np.stack(
            [column(name, views[0]) for name in table.column_names if name.startswith(kind)], 1
        )
        y = several("y_")
        return RowScores(
            column("client", views[0]),
            column("row", views[0]),
            {},
            {views[0]: several("output_")},
            y[:, 0] if y.shape[1] == 1 else y,
        )
    return RowScores(
        column("client", views[0]),
        column("row", views[0]),
        {view: column("score", view) for view in views},
    )
