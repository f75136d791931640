"""What a run keeps so that its models can be used without its training data: the outline of the
federation, the graph, and the finished models of methods that work them out from data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coterie.core.errors import InvalidInput
from coterie.core.files import write_json, writing
from coterie.core.trees import leaf_names, named_leaves, with_leaves
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph, complete, from_arrays
from coterie.coupling.learnt import GraphRule
from coterie.data.outline import Outline, outline
from coterie.engine.personal import adapts_on_data, all_views
from coterie.engine.simulator import Simulator
from coterie.report.learnt import LearntGraph
from coterie.report.outcome import learnt_graph
from coterie.runs.experiment import Experiment

FACTS, ARRAYS = "outline.json", "outline.safetensors"
MODELS = "models.safetensors"
LEARNT = "graph.safetensors"
FILES = (FACTS, ARRAYS, MODELS)
REBUILT = ("complete", "equal", "star", "ring", "random-graph", "random", "similar", "learn")
"""Kinds of graphs that follow from an outline, or from a run's state; others are kept."""


def note(folder: Path, experiment: Experiment, simulator: Simulator) -> None:
    """Write the outline of the data that a run trains on."""
    plain, arrays = outline(simulator.everybody).to_config()
    if simulator.graph is not None and experiment.graph.kind not in REBUILT:
        graph = experiment.graph.build(simulator.everybody)
        assert isinstance(graph, Graph)
        plain["graph"], found = graph_arrays(graph)
        arrays |= found
    write_arrays(folder / ARRAYS, arrays)
    write_json(folder / FACTS, plain)  # last: whoever finds it finds the arrays


def graph_arrays(graph: Graph) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A graph for files: plain values and arrays. Where all are tied alike, one weight says it."""
    weights, n = graph.weights, graph.clients
    if n > 1 and weights.nnz == n * (n - 1) and (weights.data == weights.data[0]).all():
        return {"name": graph.name, "complete": float(weights.data[0])}, {}
    return {"name": graph.name}, {f"graph/{part}": a for part, a in graph.arrays().items()}


def graph_of(
    told: dict[str, Any] | None, arrays: dict[str, NDArray[Any]], clients: int
) -> Graph | None:
    """The inverse of `graph_arrays`."""
    if told is None:
        return None
    if "complete" in told:
        return complete(clients, told["complete"], told["name"])
    mine = {k.removeprefix("graph/"): a for k, a in arrays.items() if k.startswith("graph/")}
    return from_arrays(mine, clients, told["name"])


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with writing(path) as temporary:
        save_file({k: np.asarray(v, order="C") for k, v in arrays.items()}, temporary)


def read(folder: Path, experiment: Experiment) -> tuple[Outline, Graph | GraphRule | None] | None:
    """What `note` wrote; None in folders of versions that wrote none."""
    if not (folder / FACTS).is_file():
        return None
    try:
        plain = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        arrays = load_file(folder / ARRAYS)
        found = Outline.from_config(plain, arrays)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"the outline of the data in {str(folder)!r} cannot be read: {why}; delete {FACTS}"
            " there to use the data themselves."
        ) from None
    if plain.get("graph") is not None:
        return found, graph_of(plain["graph"], arrays, found.clients)
    method, kind = experiment.method, experiment.graph.kind
    rebuilt = method.couples and kind in REBUILT
    return found, experiment.graph.build(found) if rebuilt else None


def note_learnt(folder: Path, simulator: Simulator) -> None:
    """Write the graph that a run has learnt, if it has."""
    found = learnt_graph(simulator)
    if found is not None:
        write_arrays(folder / LEARNT, found.to_arrays())


def read_learnt(folder: Path) -> LearntGraph | None:
    """What `note_learnt` wrote."""
    path = folder / LEARNT
    return LearntGraph.from_arrays(load_file(path)) if path.is_file() else None


def note_models(folder: Path, simulator: Simulator) -> None:
    """Write the finished models of all members, if they cannot be had from the states alone."""
    if not adapts_on_data(simulator):
        return
    arrays = {"round": np.asarray(simulator.t)}
    for view, model in all_views(simulator).items():
        arrays |= {f"{view}/{name}": leaf for name, leaf in named_leaves(model.tree).items()}
    write_arrays(folder / MODELS, arrays)


def read_models(folder: Path, simulator: Simulator, place: int) -> dict[str, Vector] | None:
    """One member's finished models, by view; None if the run kept none of this round."""
    from safetensors import safe_open

    path = folder / MODELS
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            if int(file.get_tensor("round")) != simulator.t:
                return None
            models, like = {}, simulator.model.predictor(simulator.federation.input_shape)
            for view in simulator.method.model_views:
                leaves = {}
                for name in leaf_names(like):
                    rows = file.get_slice(f"{view}/{name}")
                    row = place if rows.get_shape()[0] > 1 else 0
                    leaves[name] = rows[row]
                models[view] = Vector(with_leaves(like, leaves))
            return models
    except (OSError, ValueError, SafetensorError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"the finished models in {str(path)!r} cannot be read: {why}; run the experiment again"
            " to have them."
        ) from None
