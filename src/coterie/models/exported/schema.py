"""What an exported model wants and gives, in words and plain values (schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.data.kinds import Column
    from coterie.models.exported.model import Exported

ORDERS = {"ymd": "year, month, day", "dmy": "day, month, year", "mdy": "month, day, year"}


def schema_of(model: Exported) -> dict[str, Any]:
    """The columns that are wanted, or the shape of inputs, and what comes out."""
    wants: dict[str, Any]
    if model.prepared is None:
        wants = {"array": {"shape": ["rows", *model.inputs], "type": "number"}}
        if model.scaling:
            wants["array"]["scaling"] = model.scaling
    else:
        refuses = model.prepared.missing == "refuse"
        wants = {"columns": [_column(column, refuses) for column in model.prepared.columns]}
    return {"inputs": wants, "output": _output(model)}


def _column(column: Column, refuses: bool) -> dict[str, Any]:
    kinds = {"category": "text", "list": f"list of {column.length} numbers"}
    told: dict[str, Any] = {"name": column.name, "type": kinds.get(column.kind, column.kind)}
    if column.kind == "category":
        told["values"] = list(column.values)
        told["other values"] = "are none of these"
    if column.kind == "date":
        clock = "days" not in column.parts
        told["type"] = "time of day" if clock else "date"
        if column.order in ORDERS:
            told["order in text"] = ORDERS[column.order]
    told["missing values"] = "are refused" if refuses else _filled(column)
    return told


def _filled(column: Column) -> str:
    if column.kind == "category":
        return "are none of the values"
    if column.kind == "date":
        return "become the training mean"
    fill = ", ".join(f"{value:g}" for value in (column.fill or (0.0,))[:3])
    return f"become {fill}" + (" …" if len(column.fill) > 3 else "")


def _output(model: Exported) -> dict[str, Any]:
    if model.task == "classification":
        return {
            "task": model.task,
            "target": model.target,
            "prediction": "the name of a class",
            "classes": list(model.names),
        }
    return {
        "task": model.task,
        "target": model.target,
        "prediction": "a number in the target's own units",
        "numbers": model.outputs,
    }
