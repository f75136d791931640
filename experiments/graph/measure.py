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

from coterie.engine.pace import pace_of
from coterie.methods.local import Local
from coterie.report.answer import best_local
from coterie.report.comparison import Comparison, Entry, worst_tenth
from coterie.report.significance import (
    LEVEL,
    Rows,
    benjamini_hochberg,
    of_each_client,
    of_these_sites,
)
from coterie.runs.compare import compare_into, with_locals
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment

COLUMNS = (
    *("method", "all", "data-poor", "worst 10%", "gain over Local", "clearly helped"),
    *("clearly hurt", "bytes a client", "validation"),
)
WIRE = {
    "mnist": {"whole": 66_176, "4 bits": 8_962, "largest": 2_401, "in turn": 890, "sketch": 976},
    "har": {"whole": 28_967, "4 bits": 4_332, "largest": 1_433, "in turn": 798, "sketch": 947},
}
"""Bytes of a client and exchange on the wire over Zenoh, both ways, as measured with models of
these sizes and version 2 of the wire (bench/wire.result.md, "before"; "in turn": 1.45% on MNIST,
1.3% on HAR); and of finding kin.
"""


def sent_as(contender: Contender) -> str:
    """What the channel makes of a model."""
    channel = contender.channel
    if channel.name == "delta":
        return "in turn" if channel.cyclic else "largest"
    return "whole" if channel.lossless else "4 bits"


def on_the_wire(contender: Contender, experiment: Experiment) -> tuple[int, int] | None:
    """How often a client talks, and its bytes on the wire in the whole run; None where these were
    not measured.
    """
    costs = WIRE.get(experiment.data.name)
    if costs is None or not contender.method.talks or contender.method.name == "pfedme":
        return None
    graph, rounds = experiment.graph_of(contender), experiment.training.rounds
    learnt = contender.method.couples and graph.kind == "learn"
    alone = graph.learns.after if learnt else 0
    pace = pace_of(contender.method, rounds, alone)
    count = (rounds if pace is None else len(pace.rounds)) - alone
    return count, count * costs[sent_as(contender)] + (costs["sketch"] if learnt else 0)


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
    validated = lambda entry: float(np.mean([o.validation for o in entry.outcomes]))
    best: dict[type, Entry] = {}
    for entry in comparison.entries:
        kind = type(entry.outcomes[0].method)
        if kind not in best or validated(entry) > validated(best[kind]):
            best[kind] = entry
    lines = []
    for entry in comparison.entries:
        if entry.collapsed:
            lines.append(
                (-1.0, f"| {short(entry.label)} | collapsed |" + " |" * (len(COLUMNS) - 2))
            )
            continue
        outcomes = entry.outcomes
        if isinstance(outcomes[0].method, Local) and entry is not best[type(outcomes[0].method)]:
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
        chosen = validated(entry)
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


def few_bytes(comparison: Comparison, experiment: Experiment) -> list[str]:
    """What is left of FedU's gain over Local for how few bytes: against FedU whole over the graph
    that reads labels, which is the first method with a graph.
    """
    local = best_local(comparison)
    assert local is not None
    everybody = experiment.training.cohort_size(comparison.federation) == (
        comparison.federation.clients
    )
    labelled, _ = with_locals(experiment.contenders, everybody)
    mean = lambda entry: float(np.mean([np.nanmean(o.last()) for o in entry.outcomes]))
    poor = lambda entry: float(
        np.mean([np.nanmean(o.last()[list(o.poor)]) for o in entry.outcomes])
    )
    rows = []
    for (_, contender), entry in zip(labelled, comparison.entries, strict=True):
        wire = on_the_wire(contender, experiment)
        if wire is not None and not entry.collapsed:
            rows.append((contender, entry, wire))
    first = next(row for row in rows if row[0].method.couples)
    lines = [
        "| method | talks | all: kept | data-poor: kept | payload, times fewer | on the wire, kB |"
        " wire, times fewer |",
        "|---|---|---|---|---|---|---|",
    ]
    spent = lambda entry: float(np.mean([o.up[-1] + o.down[-1] for o in entry.outcomes]))
    share = lambda of, entry: 100 * (of(entry) - of(local)) / (of(first[1]) - of(local))
    for _, entry, (count, bytes_) in sorted(rows, key=lambda row: -row[2][1]):
        lines.append(
            f"| {short(entry.label)} | {count} | {share(mean, entry):.0f}% |"
            f" {share(poor, entry):.0f}% | {spent(first[1]) / spent(entry):,.0f} |"
            f" {bytes_ / 1000:,.1f} | {first[2][1] / bytes_:,.0f} |"
        )
    return lines


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
    pages = [head, "", *table(comparison), ""]
    if out.name.startswith("bytes"):
        pages += [
            "What is kept of the gain of FedU whole over the oracle's graph against Local (its line"
            " is the one with 100%), and bytes: payload as billed, wire as measured over Zenoh.",
            "",
            *few_bytes(comparison, experiment),
            "",
        ]
    (out / "result.md").write_text("\n".join([*pages, *notes, ""]))
