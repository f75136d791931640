"""What a comparison of this folder says, in one table: accuracy of all clients, of those with
little data and of the worst tenth, who is clearly hurt, and what it cost.

python experiments/graph/measure.py runs/graph-mnist experiments/graph/mnist

reads the finished runs of the first folder and writes result.md into the second. All methods are
measured against one Local: the tuned one. A client is clearly hurt where the exact paired test on
its own test rows says so (Benjamini–Hochberg over clients). Bytes are the payload that a client
sends and receives in the whole run, sketches included.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np

from coterie.methods.local import Local
from coterie.report.answer import best_local
from coterie.report.comparison import Comparison, worst_tenth
from coterie.report.significance import (
    LEVEL,
    Rows,
    benjamini_hochberg,
    of_each_client,
    of_these_sites,
)
from coterie.runs.compare import compare_into
from coterie.runs.experiment import Experiment

COLUMNS = (
    *("method", "all", "data-poor", "worst 10%", "gain over Local", "clearly helped"),
    *("clearly hurt", "bytes a client", "validation"),
)


def short(text: str) -> str:
    """Without the digits of tuned values that nobody reads."""
    return re.sub(r"\d+\.\d{4,}", lambda found: f"{float(found[0]):.3g}", text)


def spread(values: list[float]) -> str:
    return f"{100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f}"


def table(comparison: Comparison) -> list[str]:
    """A line for every method, the best on validation data first."""
    local = best_local(comparison)
    assert local is not None
    clients = comparison.federation.clients
    lines = []
    for entry in comparison.entries:
        if entry.collapsed:
            lines.append(
                (-1.0, f"| {short(entry.label)} | collapsed |" + " |" * (len(COLUMNS) - 2))
            )
            continue
        outcomes = entry.outcomes
        if isinstance(outcomes[0].method, Local) and entry is not local:
            continue  # those with other methods' step sizes
        scores = [o.last() for o in outcomes]
        poor = [s[list(o.poor)] for s, o in zip(scores, outcomes, strict=True)]
        found = [
            Rows(
                a.rows.client,
                a.rows.scores[a.view].astype(float) - b.rows.scores[b.view].astype(float),
            )
            for a, b in zip(outcomes, local.outcomes, strict=True)
            if a.rows is not None and b.rows is not None
        ]
        gain, helped, hurt = "", "", ""
        if entry is not local:
            tested = of_these_sites(found)
            means, p = of_each_client(found, list(range(clients)))
            clear = benjamini_hochberg(p) <= LEVEL
            gain = f"{100 * tested.mean:+.2f}"
            if tested.low is not None and tested.high is not None:
                gain += f" ({100 * tested.low:+.2f} to {100 * tested.high:+.2f})"
            helped = f"{int((clear & (means > 0)).sum())} of {clients}"
            hurt = f"{int((clear & (means < 0)).sum())} of {clients}"
        bytes_ = np.mean([(o.up[-1] + o.down[-1]) / clients for o in outcomes])
        chosen = float(np.mean([o.validation for o in outcomes]))  # type: ignore[arg-type]
        cells = [
            short(entry.label),
            spread([float(np.nanmean(s)) for s in scores]),
            spread([float(np.nanmean(s)) for s in poor]),
            spread([worst_tenth(s) for s in scores]),
            *(gain, helped, hurt, f"{bytes_:,.0f}", f"{100 * chosen:.2f}"),
        ]
        lines.append((chosen, "| " + " | ".join(cells) + " |"))
    ranked = [line for _, line in sorted(lines, key=lambda found: -found[0])]
    return ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), *ranked]


if __name__ == "__main__":
    runs, out = Path(sys.argv[1]), Path(sys.argv[2])
    config = tomllib.loads((runs / "config.toml").read_text())
    experiment = Experiment.from_config(config)
    comparison = compare_into(experiment, runs)
    chosen = best_local(comparison)
    assert chosen is not None
    head = (
        f"{experiment.name}. Mean over clients on test data, in %, ± deviation over"
        f" {len(experiment.seeds)} seeds; every method tuned with the same budget on validation"
        " data of another seed. Gains, who is helped and who is hurt: against"
        f" {short(chosen.label)}, with the 95% interval of the mean for these clients. Best on"
        " validation data first."
    )
    notes = [f"- {short(note)}" for note in comparison.notes()]
    (out / "result.md").write_text("\n".join([head, "", *table(comparison), "", *notes, ""]))
