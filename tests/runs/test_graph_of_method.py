"""A graph of a method's own in a comparison: it is used, told, tuned and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import InvalidInput
from coterie.runs.compare import compare, compare_into
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.graph_options import GraphOptions
from coterie.runs.tuning.tune import tune_methods

SMALL: dict[str, Any] = {"rounds": 4, "eval_every": 4}
KIN = {"kind": "learn", "rule": {"name": "kin", "neighbours": 1, "after": 2}}


def config(**more: Any) -> dict[str, Any]:
    fedu = {"name": "fedu", "local_steps": 2}
    return {
        "name": "graphs",
        "data": {"name": "digits", "clients": 5},
        "training": SMALL,
        "graph": {"kind": "ring"},
        "methods": [fedu, {**fedu, "graph": KIN}, {**fedu, "graph": "similar"}],
        **more,
    }


def test_each_method_runs_over_its_own_graph(tmp_path: Path) -> None:
    experiment = Experiment.from_config(config())
    assert Experiment.from_config(experiment.to_config()) == experiment
    table = compare_into(experiment, tmp_path)
    labels = [row.label for row in table.rows()]
    assert labels == ["Local", "FedU", "FedU over learn: kin", "FedU over similar"]
    fed = experiment.federation()
    for row, graph in (
        (1, coterie.graph.ring(5)),
        (2, coterie.learn_graph("kin", neighbours=1, after=2)),
        (3, coterie.graph.by_labels(fed.label_counts())),
    ):
        alone = coterie.simulate(coterie.FedU(local_steps=2), fed, "mlr", graph=graph, **SMALL)
        mine = table.entries[row].outcomes[0]
        np.testing.assert_array_equal(mine.scores["personal"][-1], alone.client_scores())
    assert any('"similar" is an oracle' in note for note in table.notes())
    runs = sorted(p.name for p in (tmp_path / "runs").iterdir())
    assert len(runs) == 4
    again = compare_into(experiment, tmp_path)
    assert [row.label for row in again.rows()] == labels


def test_in_memory(tmp_path: Path) -> None:
    fed = coterie.load("digits", clients=5)
    own = Contender(coterie.FedU(local_steps=2, eta=0.4), graph=GraphOptions(kind="ring"))
    found = compare([coterie.FedU(local_steps=2, eta=0.4), own], fed, **SMALL)
    assert [row.label for row in found.rows()] == ["Local", "FedU", "FedU over ring"]
    a, b = (e.outcomes[0].scores["personal"][-1] for e in found.entries[1:])
    assert not np.array_equal(a, b)


def test_a_method_is_tuned_over_its_own_graph() -> None:
    pytest.importorskip("optuna", reason="tuning is an extra")
    experiment = Experiment.from_config(
        config(tune={"steps": 40}, methods=config()["methods"][:2], training={**SMALL, "rounds": 3})
    )
    found = tune_methods(experiment)
    assert [t.contender.graph for t in found if t.contender.method.name == "fedu"] == [
        None,
        GraphOptions.from_config(KIN),
    ]


def test_what_cannot_be() -> None:
    with pytest.raises(InvalidInput, match=r"method\.graph is 'ring', but fedavg goes over no"):
        Contender.from_config({"name": "fedavg", "graph": "ring"})
    with pytest.raises(InvalidInput, match=r"graph\.kind"):
        Contender.from_config({"name": "fedu", "graph": "cubic"})
    with pytest.raises(InvalidInput, match="given twice with the same options"):
        compare_into(
            Experiment.from_config(config(methods=[{"name": "fedu", "graph": "ring"}] * 2)),
            Path("never"),
        )
