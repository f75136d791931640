"""On somebody's own data FedU stands over two graphs; the answer says over which it is better."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.data.federation import Federation, pack
from coterie.runs.answer import Wishes, answer_into
from coterie.runs.compare import Doing
from coterie.runs.experiment import Experiment
from coterie.runs.presets import own_data, with_methods
from coterie.runs.remake import gather

FEW: dict[str, Any] = {"rounds": 12, "eval_every": 12}


@functools.cache
def two_kinds() -> Federation:
    """Eight clients with few rows; of half of them the rule is turned round."""
    rng = np.random.default_rng(5)
    rule = rng.standard_normal(8)

    def part(count: int) -> Any:
        out = []
        for k in range(8):
            x = rng.standard_normal((count, 8)).astype(np.float32)
            right = (x @ rule > 0) == (k < 4)
            out.append((x, right.astype(np.int32)))
        return pack(out)

    return Federation("two kinds", part(16), part(40), part(40), classes=2)


def table(path: Path, clients: int) -> Path:
    fed = two_kinds()
    lines = ["site,y," + ",".join(f"x{i}" for i in range(8))]
    for k in range(clients):
        for part in (fed.train, fed.test):
            for x, y in zip(*part.client(k), strict=True):
                lines.append(f"S{k},{'ab'[y]}," + ",".join(f"{v:.4f}" for v in x))
    path.write_text("\n".join(lines) + "\n")
    return path


def asked(path: Path, **config: Any) -> list[tuple[str, Any]]:
    made = with_methods({**own_data(path, "site", "y"), **config}, ["local", "fedu"])
    experiment = Experiment.from_config(made)
    return [
        (c.method.name, c.graph and (c.graph.learns if c.graph.kind == "learn" else c.graph.kind))
        for c in experiment.contenders
    ]


def test_two_graphs_unless_one_is_asked_for_or_clients_are_few(tmp_path: Path) -> None:
    many, few = table(tmp_path / "many.csv", 8), table(tmp_path / "few.csv", 5)
    kin = coterie.learn_graph("kin", neighbours=2, after=5)
    assert asked(many) == [("local", None), ("fedu", "complete"), ("fedu", kin)]
    assert asked(few) == [("local", None), ("fedu", None)]
    assert asked(many, training={"rounds": 5}) == [("local", None), ("fedu", None)]
    assert asked(many, graph={"kind": "ring"}) == [("local", None), ("fedu", None)]
    ring = {"fedu": {"graph": {"kind": "ring"}}}
    assert asked(many, methods=ring) == [("local", None), ("fedu", "ring")]


def test_a_value_that_somebody_sets_holds_over_both(tmp_path: Path) -> None:
    given = own_data(table(tmp_path / "many.csv", 8), "site", "y")
    made = with_methods({**given, "methods": {"fedu": {"eta": 0.002}}}, ["fedu"])
    assert [m["eta"] for m in made["methods"]] == [0.002, 0.002]
    assert "eta" not in made["tune"]["search"]["fedu"]
    assert "lr" in made["tune"]["search"]["fedu"]


def test_the_learnt_graph_is_chosen_where_it_is_better() -> None:
    found = coterie.answer(two_kinds(), ["fedu"], minutes=0, seeds=[0, 1], **FEW)
    assert [e.label for e in found.entries] == [
        "Local",
        "FedU over complete",
        "FedU over learn: kin",
    ]
    learnt = found.entries[2].outcomes[0].learnt
    assert learnt is not None
    kinds = np.arange(8) < 4
    ends = learnt.graph.weights.nonzero()
    assert np.array_equal(kinds[ends[0]], kinds[ends[1]])
    answer = found.answer()
    assert answer.to_config()["graph"] == "learn: kin"
    assert answer.word == "federate"
    scores = [100 * np.mean([o.validation for o in e.outcomes]) for e in found.entries[1:]]
    sentence = (
        f"FedU has {scores[1]:.2f} on validation data over a graph that is learnt while training"
        f" (rule kin), and {scores[0]:.2f} over the complete graph."
    )
    assert sentence in str(answer)


def test_a_given_graph_is_the_only_one() -> None:
    ring = coterie.graph.ring(8)
    found = coterie.answer(two_kinds(), ["fedu"], minutes=0, seeds=[0], graph=ring, **FEW)
    assert [(e.label, e.graph) for e in found.entries] == [("Local", None), ("FedU", "ring")]


@pytest.mark.slow
def test_from_a_table_both_are_tuned(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="tuning is an extra")
    given = own_data(table(tmp_path / "many.csv", 8), "site", "y") | {"training": FEW}
    config = with_methods(given, ["local", "fedu"])
    experiment = Experiment.from_config(config | {"seeds": [0]})
    found = answer_into(experiment, tmp_path / "out", Doing(), Wishes(minutes=0.5))
    labels = ["Local", "FedU over complete", "FedU over learn: kin"]
    assert [e.label for e in found.entries] == labels
    scores = [e.validation for e in found.entries]
    assert None not in scores
    said = json.loads((tmp_path / "out" / "answer.json").read_text())
    best = max(found.entries[1:], key=lambda e: e.validation or 0.0)
    assert (said["method"], said["graph"]) == (best.label, best.graph)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "FedU over learn: kin" in page
    assert gather([tmp_path / "out"]).html() == page, "a report is made of its runs alone"
    trials = (tmp_path / "out" / "tuning" / "trials.md").read_text()
    assert "shared equally" in trials
    assert "## fedu-complete" in trials
    assert "## fedu-learn" in trials
