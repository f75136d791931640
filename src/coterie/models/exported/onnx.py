"""An exported model as ONNX, with its preprocessing inside (extra `onnx`).

Inputs are the raw columns, each of shape (rows, 1): numbers, true/false (as 1 and 0) and dates (as
seconds since 1970, UTC; times of day: since midnight) in double precision with NaN where a value is
missing; categories as text with an empty text where it is missing. Lists have the shape (rows,
length). A model without preprocessing has the one input `x`, in single precision.

Outputs are `label` (text) and `probabilities` for classes, `value` for a quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.core.errors import InvalidInput
from coterie.models.exported.layers_onnx import IR, ML_OPSET, OPSET, Emitter, emit

if TYPE_CHECKING:
    from coterie.data.kinds import Column
    from coterie.data.prepared import Prepared
    from coterie.models.exported.model import Exported

DAY = 86_400.0
WEEK = 7.0
ROWS = "rows"


def to_onnx(model: Exported) -> Any:
    """The model as an `onnx.ModelProto`, checked."""
    try:
        import onnx
        from onnx import helper
    except ModuleNotFoundError:
        raise InvalidInput(
            "writing ONNX needs the library onnx; install it with: pip install 'coterie[onnx]'"
        ) from None

    import coterie

    to = Emitter()
    kinds = onnx.TensorProto
    if model.prepared is None:
        inputs = [helper.make_tensor_value_info("x", kinds.FLOAT, [ROWS, *model.inputs])]
        x = "x"
    else:
        inputs = [
            helper.make_tensor_value_info(
                column.name,
                kinds.STRING if column.kind == "category" else kinds.DOUBLE,
                [ROWS, column.length if column.kind == "list" else 1],
            )
            for column in model.prepared.columns
        ]
        x = _prepare(to, model.prepared)
    if model.components:
        raise InvalidInput(
            "the model is a mixture, but ONNX files hold one model; export it without ONNX."
        )
    out = emit(to, model.spec, model.parameters, x, model.inputs)
    outputs = _finish(to, model, out)
    graph = helper.make_graph(to.nodes, "coterie", inputs, outputs, to.constants)
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    made = helper.make_model(graph, opset_imports=versions, ir_version=IR)
    made.producer_name, made.producer_version = "coterie", coterie.__version__
    told = {**model.short(), "target": model.target, "task": model.task}
    helper.set_model_props(made, {k: v for k, v in told.items() if v})
    onnx.checker.check_model(made, full_check=True)
    return made


def _prepare(to: Emitter, prepared: Prepared) -> str:
    """Raw columns to inputs in single precision, in the model's order."""
    blocks = [_column(to, column) for column in prepared.columns]
    x = blocks[0] if len(blocks) == 1 else to.node("Concat", blocks, axis=1)
    x = to.node("Cast", [x], to=1)
    order = np.concatenate([np.array(p, np.int64) for p in prepared.places])
    if (order == np.arange(len(order))).all():
        return x
    return to.node("Gather", [x, to.constant(np.argsort(order))], axis=1)


def _column(to: Emitter, column: Column) -> str:
    """One column's inputs, in double precision: (rows, width + flags)."""
    if column.kind == "category":
        return _one_hot(to, column)
    numbers = _date(to, column) if column.kind == "date" else column.name
    gaps = to.node("IsNaN", [numbers])
    fill = np.array(column.fill or [0.0] * column.width)
    x = to.node("Where", [gaps, to.constant(fill), numbers])
    if column.scale:
        mean, scale = np.array(column.mean), np.array(column.scale)
        moved = to.node("Sub", [x, to.constant(mean)])
        x = to.node("Mul", [moved, to.constant(np.where(np.isinf(scale), 0.0, 1.0 / scale))])
    if column.flagged:
        some = to.node("Gather", [gaps, to.constant(np.array(column.flagged))], axis=1)
        x = to.node("Concat", [x, to.node("Cast", [some], to=11)], axis=1)
    return x


def _one_hot(to: Emitter, column: Column) -> str:
    """One number per value; a text that is none of them is a row of zeros."""
    places = to.node(
        "LabelEncoder",
        [column.name],
        ml=True,
        keys_strings=list(column.values),
        values_int64s=list(range(column.width)),
        default_int64=-1,
    )
    same = to.node("Equal", [places, to.constant(np.arange(column.width)[None])])
    return to.node("Cast", [same], to=11)


def _date(to: Emitter, column: Column) -> str:
    """Seconds to days, and to the place in the day and in the week on a circle."""
    days = to.node("Div", [column.name, to.constant(np.array(DAY))])
    parts = []
    for part in column.parts:
        if part == "days":
            parts.append(days)
            continue
        unit, _, wave = part.partition(" ")
        whole = to.node("Floor", [days])
        if unit == "hour":
            turn = to.node("Sub", [days, whole])
        else:
            # 1 January 1970 was a Thursday: Monday is 0.
            shifted = to.node("Add", [whole, to.constant(np.array(3.0))])
            weeks = to.node("Div", [shifted, to.constant(np.array(WEEK))])
            turn = to.node("Sub", [weeks, to.node("Floor", [weeks])])
        angle = to.node("Mul", [turn, to.constant(np.array(2 * np.pi))])
        single = to.node("Cast", [angle], to=1)
        parts.append(to.node("Cast", [to.node(wave.capitalize(), [single])], to=11))
    return parts[0] if len(parts) == 1 else to.node("Concat", parts, axis=1)


def _free(model: Exported, name: str) -> str:
    """The name of an output: another one where a column has it."""
    taken = () if model.prepared is None else [column.name for column in model.prepared.columns]
    while name in taken:
        name = f"output_{name}"
    return name


def _finish(to: Emitter, model: Exported, out: str) -> list[Any]:
    from onnx import TensorProto, helper

    label, proba, value = (_free(model, n) for n in ("label", "probabilities", "value"))
    if model.task == "classification":
        to.node("Softmax", [out], name=proba, axis=1)
        best = to.node("ArgMax", [out], axis=1, keepdims=0)
        to.node("Gather", [to.constant(list(model.names)), best], name=label, axis=0)
        return [
            helper.make_tensor_value_info(label, TensorProto.STRING, [ROWS]),
            helper.make_tensor_value_info(proba, TensorProto.FLOAT, [ROWS, model.outputs]),
        ]
    scale, mean = 1.0, 0.0
    if model.prepared is not None:
        scale, mean = model.prepared.target_scale, model.prepared.target_mean
    wide = to.node("Cast", [out], to=11)
    scaled = to.node("Mul", [wide, to.constant(np.array(scale))])
    to.node("Add", [scaled, to.constant(np.array(mean))], name=value)
    return [helper.make_tensor_value_info(value, TensorProto.DOUBLE, [ROWS, model.outputs])]
