"""From X, y and groups to a federation, and from there to models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, shown
from coterie.core.trees import named_leaves, with_leaves
from coterie.coupling import graph as graphs
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule, learn_graph
from coterie.data.federation import Federation, Split
from coterie.data.fitting import fit_columns
from coterie.data.kinds import kind_of
from coterie.data.prepared import Prepared, inputs_of
from coterie.data.reading import as_table
from coterie.data.scaling import Scaling, fit
from coterie.data.shape import Task
from coterie.engine.personal import all_views
from coterie.engine.simulator import Simulator
from coterie.engine.training import Training
from coterie.methods.base import METHODS, Method, get_method
from coterie.models.base import ModelSpec, get_model
from coterie.runs.kit import Kit

Array = NDArray[Any]
Arrays = dict[str, Array]
ALL = "all"
"""The name of the only group, where none are given."""


def is_frame(x: Any) -> bool:
    """A table with named columns: pandas, polars, Arrow."""
    return hasattr(x, "columns") and (hasattr(x, "dtypes") or hasattr(x, "schema"))


def as_arrow(x: Any) -> Any:
    """A frame as an Arrow table; names of columns become text."""
    table = as_table(x)
    return table.rename_columns([str(name) for name in table.column_names])


class Inputs(NamedTuple):
    """How X becomes inputs, as plain values; one of the two, or neither."""

    prepared: dict[str, Any] | None = None
    scaling: Arrays | None = None

    @classmethod
    def fit(cls, x: Any, *, standardise: bool) -> tuple[Inputs, Array]:
        """Of an array of numbers, or of a frame with columns of all kinds."""
        if is_frame(x):
            table = as_arrow(x)
            kinds = [kind_of(table.column(name), name) for name in table.column_names]
            rows = np.arange(table.num_rows)
            given = {name: table.column(name) for name in table.column_names}
            made = fit_columns(given, kinds, [rows], missing="fill", standardise=standardise)
            prepared = Prepared(made.columns, missing="fill")
            return cls(prepared.to_config()), made.inputs[0]
        if not standardise:
            return cls(), np.asarray(x, np.float32)
        scaling = fit(np.asarray(x, np.float64))
        plain = {"mean": scaling.mean, "scale": scaling.scale}
        return cls(None, plain), scaling(np.asarray(x, np.float64)).astype(np.float32)

    def of(self, x: Any) -> Array:
        if self.prepared is not None:
            return inputs_of(Prepared.from_config(self.prepared), as_arrow(x))
        x = np.asarray(x, np.float64)
        if self.scaling is not None:
            x = Scaling(self.scaling["mean"], self.scaling["scale"])(x)
        return np.asarray(x, np.float32)


def groups_of(groups: Any, rows: int) -> Array:
    """Whose row each is, as text or numbers; without groups all rows are one's."""
    if groups is None:
        return np.full(rows, ALL)
    found = np.asarray(groups.to_numpy() if hasattr(groups, "to_numpy") else groups)
    if found.ndim != 1 or len(found) != rows:
        raise InvalidInput(
            f"groups has the shape {found.shape}, but must name one group for each of {rows} rows."
        )
    if found.dtype == object:
        if any(g is None or g != g for g in found.tolist()):
            raise InvalidInput("groups has missing values, but must name a group for every row.")
        kinds = {isinstance(g, str) for g in found.tolist()}
        found = np.array([g if kinds == {True} else str(g) for g in found.tolist()])
    if found.dtype.kind not in "biuUS" and not (
        found.dtype.kind == "f" and np.isfinite(found).all()
    ):
        raise InvalidInput(
            f"groups is of type {found.dtype}, but must hold text or numbers without gaps."
        )
    return found


def places_of(known: Array, groups: Array) -> NDArray[np.int64]:
    """The place of each row's group among the known ones; −1 for strange ones."""
    text = known.dtype.kind in "US"
    if text != (groups.dtype.kind in "US"):
        known, groups = known.astype(str), groups.astype(str)
    order = np.argsort(known)
    found = np.searchsorted(known[order], groups)
    found = order[np.minimum(found, len(known) - 1)]
    return np.where(known[found] == groups, found, -1)


def strange_groups(known: Array, groups: Array) -> InvalidInput:
    names = sorted({str(g) for g in np.unique(groups)})
    have = sorted({str(g) for g in known})
    return InvalidInput(
        f"groups has {listed(names)}, which fit did not see (it saw {listed(have)}); use fallback ="
        " 'shared' for such rows, or make a model for them with adapt."
    )


def federation_of(
    x: Array, y: Array, which: Array, count: int, task: Task, classes: int
) -> Federation:
    """All rows are for training: what is held back is up to the user's own split."""
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    train = Split(x[order], y[order], offsets)
    empty = Split(x[:0], y[:0], np.zeros(count + 1, np.int64))
    return Federation("X", train, empty, empty, task, classes)


def method_of(method: Any, options: dict[str, Any]) -> Method:
    """A method by name with options, or as it is; `options` are those that are not None."""
    if isinstance(method, Method):
        return method.replace(**options) if options else method
    if isinstance(method, str) and method in METHODS:
        odd = [key for key in options if key not in METHODS[method].public()]
        if odd:
            raise InvalidInput(
                f"{odd[0]} is {shown(options[odd[0]])}, but the method {method!r} has no such"
                f" option; it has {', '.join(METHODS[method].public())}."
            )
    return get_method(method, options)


def model_of(model: Any, options: dict[str, Any]) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return model.replace(**options) if options else model
    if not isinstance(model, str):
        raise InvalidInput(
            f"model is {shown(model)}, but must be the name of a model or one of the shipped"
            " models, so that estimators can be saved."
        )
    return get_model(model, options)


def graph_of(graph: Any, federation: Federation) -> Graph | GraphRule:
    """By name ("learn": while training), as a matrix of weights in the order of the sorted groups,
    or as it is.
    """
    if isinstance(graph, (Graph, GraphRule)):
        return graph
    if graph == "learn":
        return learn_graph()
    if isinstance(graph, str):
        return graphs.build(graph, federation)
    return graphs.build("matrix", federation, matrix=graph)


class Trained(NamedTuple):
    """What is kept of training, as plain values and arrays."""

    models: dict[str, Arrays]
    """By view, each array stacked over the groups (or of length 1: the same for all)."""
    kit: tuple[dict[str, Any], Arrays]


def train(
    federation: Federation, method: Method, spec: ModelSpec, training: Training, graph: Any
) -> Trained:
    tied = graph_of(graph, federation) if method.couples else None
    simulator = Simulator(method, federation, spec, training, tied)
    while simulator.t < training.rounds:
        simulator.advance(training.rounds - simulator.t)
    views = {view: named_leaves(model.tree) for view, model in all_views(simulator).items()}
    return Trained(views, Kit.of(simulator, method, spec).to_config())


def tree_of(like: Any, arrays: Arrays) -> Any:
    """Stacked arrays by name as a stacked tree; `like` is the tree of one model's shapes.

    In double precision: what a row gets does not depend on the rows beside it.
    """
    wide = {name: np.asarray(a, np.float64) for name, a in arrays.items()}
    return with_leaves(like, wide, stacked=True)
