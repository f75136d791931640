"""What the demo ends with: every participant's models and bytes beside the simulator's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.table import Table
from safetensors.numpy import load_file

from coterie.data.federation import Federation
from coterie.deploy.demo.processes import DemoFailed
from coterie.deploy.plan import Plan
from coterie.engine.simulate import Simulator, drive
from coterie.report.units import bytes_text
from coterie.runs.export import tensors


@dataclasses.dataclass(frozen=True)
class Row:
    """One participant at the end."""

    method: str
    name: str
    difference: float
    """Largest difference between its models and the simulator's, relative to the largest number of
    the model.
    """
    up: int
    down: int
    simulated_up: int
    simulated_down: int
    value: float
    """Of the plan's metric on its test data."""
    metric: str


def hub_bill(folder: Path, rounds: int) -> Callable[[int], Any]:
    """Bytes up and down of a client, by the bill in a plan's folder at the hub, without the hub's
    last word, which a simulator need not send.
    """
    table = pq.read_table(folder / "ledger.parquet").to_pydict()
    bill = np.stack([np.asarray(table[key]) for key in ("round", "client", "up", "down")], 1)
    bill = bill[bill[:, 0] < rounds]
    return lambda k: bill[bill[:, 1] == k][:, 2:].sum(0)


def peer_bill(folders: Sequence[Path]) -> Callable[[int], Any]:
    """The same of a peer, by its own bill."""

    def bill(k: int) -> Any:
        table = pq.read_table(folders[k] / "ledger.parquet").to_pydict()
        return [sum(table["up"]), sum(table["down"])]

    return bill


def _simulated(plan: Plan, fed: Federation, graph: Any) -> Simulator:
    # On one device, as every participant computes: it is compared to the last bits.
    training = plan.training.replace(devices=1)
    simulator = Simulator(plan.method, fed, plan.model, training, graph, channel=plan.channel)
    for _ in drive(simulator):
        pass
    return simulator


def compared(
    plan: Plan,
    fed: Federation,
    graph: Any,
    names: Sequence[str],
    folders: Sequence[Path],
    bill: Any,
) -> list[Row]:
    simulator = _simulated(plan, fed, graph)
    expected = simulator.ledger.rows()
    scores = simulator.evaluate().scores["test"].score[0]
    out = []
    for k, (name, folder) in enumerate(zip(names, folders, strict=True)):
        worst = 0.0
        for view, model in simulator.models(k).items():
            found = load_file(folder / "models" / f"{view}.safetensors")
            for key, value in tensors(model).items():
                worst = max(worst, float(np.abs(found[key] - value).max() / np.abs(value).max()))
        mine, theirs = bill(k), expected[expected[:, 1] == k]
        up, down = (int(n) for n in mine)
        out.append(
            Row(
                plan.method.title,
                name,
                worst,
                up,
                down,
                int(theirs[:, 2].sum()),
                int(theirs[:, 3].sum()),
                float(simulator.metric.value(scores[k])),
                simulator.metric.title,
            )
        )
    return out


def table(rows: Sequence[Row]) -> Table:
    """What the demo ends with."""
    out = Table(
        "method",
        "client",
        f"test {rows[0].metric}",
        "bytes up",
        "bytes down",
        "same bytes as simulated",
        "largest difference to the simulator's model",
    )
    for row in rows:
        alike = (row.up, row.down) == (row.simulated_up, row.simulated_down)
        out.add_row(
            row.method,
            row.name,
            f"{row.value:.3f}",
            bytes_text(row.up),
            bytes_text(row.down),
            (
                "yes"
                if alike
                else f"no ({bytes_text(row.simulated_up)}, {bytes_text(row.simulated_down)})"
            ),
            "none" if row.difference == 0 else f"{row.difference:.1e}",
        )
    return out


def verdict(rows: Sequence[Row], although: str = "one was killed in the middle") -> str:
    """One sentence; raises DemoFailed when a model differs by more than rounding."""
    worst = max(row.difference for row in rows)
    if worst > 1e-5:
        raise DemoFailed(
            f"a model differs from the simulator's by {worst:.1e}, which is more than rounding"
            " (1e-5)."
        )
    how = "bit for bit" if worst == 0 else f"largest relative difference {worst:.1e}"
    return f"Every participant ended with the simulator's model ({how}), although {although}."
