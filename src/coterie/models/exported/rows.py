"""`coterie predict`: raw rows in, predictions out, by one exported model or by each row's own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coterie.core.errors import InvalidInput, listed, notice
from coterie.core.files import writing
from coterie.data.columns import column_of, owners_of
from coterie.data.reading import as_table
from coterie.models.apply import mean_of_all, outputs_of_each, probabilities
from coterie.models.exported.model import (
    Exported,
    Predicted,
    finished,
    is_exported,
    predict,
    read,
    read_facts,
    stacked,
)

FALLBACKS = ("global", "mean")
PREDICTION, PROBABILITY = "prediction", "probability_"


@dataclasses.dataclass(frozen=True)
class Shelf:
    """The exported models in a folder, by client; the shared one stands apart."""

    place: Path
    clients: dict[str, Path]
    shared: Path | None

    @classmethod
    def of(cls, folder: Path) -> Shelf:
        """A folder with one model, or with a folder for each of several clients."""
        if is_exported(folder) or not folder.is_dir():
            facts = read_facts(folder)
            if facts["client"] is None:
                return cls(folder, {}, folder)
            return cls(folder, {facts["client"]: folder}, None)
        inside = [f for f in sorted(folder.iterdir()) if is_exported(f) and f.name[0] != "."]
        if not inside:
            read_facts(folder)  # refuses it
        owners = [(read_facts(f)["client"], f) for f in inside]
        clients: dict[str, Path] = {}
        for name, path in owners:
            if name in clients:
                raise InvalidInput(
                    f"the folder {str(folder)!r} holds two models of {name!r}:"
                    f" {clients[name].name} and {path.name}; take one of them out."
                )
            if name is not None:
                clients[name] = path
        shared = next((path for name, path in owners if name is None), None)
        return cls(folder, clients, shared)

    def any(self) -> Exported:
        """One of the models: all read rows in the same way."""
        return read(self.shared or next(iter(self.clients.values())))

    def only(self) -> Exported:
        """The model of a folder that holds one."""
        if is_exported(self.place):
            return read(self.place)
        raise InvalidInput(
            f"the folder {str(self.place)!r} holds the models of {len(self.clients)} clients; name"
            " one of the folders in it, or the column that says whose row it is with"
            " --client-column."
        )


def _routed(shelf: Shelf, table: pa.Table, column: str, fallback: str | None) -> Predicted:
    """Every row by its own client's model."""
    if fallback not in (None, *FALLBACKS):
        allowed = " or ".join(map(repr, FALLBACKS))
        raise InvalidInput(f"fallback is {fallback!r}, but must be {allowed}.")
    owner, names = owners_of(column_of(table, "client", column), column)
    strange = [name for name in names if name not in shelf.clients]
    if strange and fallback is None:
        raise InvalidInput(
            f"the column {column!r} names {listed(strange)}, of which {str(shelf.place)!r} has no"
            f" model; it has those of {listed(sorted(shelf.clients)) or 'nobody'}. Use --fallback"
            " global (the shared model) or --fallback mean (the mean of all clients' answers) for"
            " such rows, or make models with `coterie adapt`."
        )
    if strange and fallback == "global" and shelf.shared is None:
        raise InvalidInput(
            f"fallback is 'global', but {str(shelf.place)!r} has no shared model, which exports of"
            " several clients hold where the method has one; use --fallback mean."
        )
    wanted = [name for name in names if name in shelf.clients]
    if strange and fallback == "mean":
        wanted = list(shelf.clients)
    models = [read(shelf.clients[name]) for name in wanted]
    if strange and fallback == "global":
        assert shelf.shared is not None
        models.append(read(shelf.shared))
    first, together = models[0], stacked(models)
    place = {name: i for i, name in enumerate(wanted)}
    which = np.array([place.get(name, len(models) - 1) for name in names])[owner]
    x = first.inputs_of(table)
    outputs = outputs_of_each(first.model, together, which, x, first.outputs)
    classes = first.task == "classification"
    outputs = probabilities(outputs) if classes else outputs
    if strange:
        count = int(np.isin(owner, [names.index(name) for name in strange]).sum())
        answer = "the shared model" if fallback == "global" else "the mean of all clients' answers"
        notice(
            f"{count} row{'s' if count != 1 else ''} of {listed(strange)} got {answer}: they have"
            " no model of their own."
        )
    if strange and fallback == "mean":
        rows = np.isin(owner, [names.index(name) for name in strange])
        weights = np.ones(len(models))
        outputs[rows] = mean_of_all(
            first.model, together, weights, x[rows], first.outputs, classes=classes
        )
    return finished(first, outputs, are_probabilities=classes)


def predict_table(
    folder: Path,
    data: Path,
    *,
    keep: Sequence[str] = (),
    client: str | None = None,
    fallback: str | None = None,
    proba: bool = False,
) -> pa.Table:
    """Predictions of all rows, in their order, with the columns to keep in front."""
    shelf = Shelf.of(folder)
    if client is None and fallback is not None:
        raise InvalidInput(
            f"fallback is {fallback!r}, but no column says whose row it is; give --client-column."
        )
    if data.suffix in (".npz", ".npy") and client is None and not keep:
        model = shelf.only()
        found = predict(model, data)
        return _table(model, {}, found, proba)
    names = [*keep, *([client] if client is not None else [])]
    some = shelf.only() if client is None else shelf.any()
    texts = some.prepared.texts if some.prepared is not None else []
    table = as_table(data, names, names, texts=[t for t in texts if t not in names])
    kept = {name: column_of(table, "kept", name) for name in keep}
    if client is None:
        return _table(some, kept, predict(some, table), proba)
    return _table(some, kept, _routed(shelf, table, client, fallback), proba)


def _table(model: Exported, kept: dict[str, Any], found: Predicted, proba: bool) -> pa.Table:
    columns: dict[str, Any] = {}
    if found.values.ndim == 1:
        columns[PREDICTION] = pa.array(found.values)
    else:
        columns |= {f"{PREDICTION}_{i}": pa.array(v) for i, v in enumerate(found.values.T)}
    if proba:
        if found.probabilities is None:
            raise InvalidInput(
                "--proba asks for probabilities of classes, but the model predicts a quantity."
            )
        pairs = zip(model.names, found.probabilities.T, strict=True)
        columns |= {f"{PROBABILITY}{label}": pa.array(p) for label, p in pairs}
    if twice := sorted(set(kept) & set(columns)):
        raise InvalidInput(
            f"--keep names the column {twice[0]!r}, which predictions have too; give the column of"
            " the table another name."
        )
    return pa.table({**kept, **columns})


def write_predictions(table: pa.Table, out: Path | None) -> None:
    """As CSV or Parquet, by the file's ending; without a file, as CSV to standard output."""
    from pyarrow import csv
    from pyarrow import parquet as pq

    if out is None:
        sink = pa.BufferOutputStream()
        csv.write_csv(_flat(table), sink)
        sys.stdout.write(sink.getvalue().to_pybytes().decode())
        sys.stdout.flush()
        return
    if out.suffix not in (".csv", ".parquet"):
        raise InvalidInput(f"--out is {str(out)!r}, but must end in .csv or .parquet.")
    with writing(out) as temporary:
        if out.suffix == ".csv":
            csv.write_csv(_flat(table), temporary)
        else:
            pq.write_table(table, temporary)


def _flat(table: pa.Table) -> pa.Table:
    """CSV knows no dictionary-encoded columns."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table
