"""The shipped models as ONNX operators, written by hand.

They are a few kinds of layers, and ONNX has an operator for each. So the files are small, their
batch axis is free, and nothing but `onnx` is needed to write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.models.base import Fitted, ModelSpec
from coterie.models.layers import image_shape

OPSET, ML_OPSET, IR = 18, 3, 8
"""Versions that onnxruntime has read since 1.14 (2023)."""

Array = NDArray[Any]


class Emitter:
    """Collects nodes and constants; every node gives one output, whose name is returned."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._arrays = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._count = 0

    def node(
        self, kind: str, inputs: Sequence[str], *, name: str = "", ml: bool = False, **facts: Any
    ) -> str:
        """Add an operator."""
        self._count += 1
        name = name or f"coterie/{kind.lower()}_{self._count}"
        domain = "ai.onnx.ml" if ml else ""
        self.nodes.append(
            self._helper.make_node(kind, list(inputs), [name], name, domain=domain, **facts)
        )
        return name

    def constant(self, value: Any, name: str = "") -> str:
        """Add a constant array; texts are given as a list of str."""
        self._count += 1
        name = name or f"coterie/constant_{self._count}"
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = np.array([text.encode() for text in value], object)
            kind = self._helper.np_dtype_to_tensor_dtype(np.dtype(object))
            made = self._helper.make_tensor(name, kind, [len(value)], list(value))
        else:
            made = self._arrays.from_array(np.ascontiguousarray(value), name)
        self.constants.append(made)
        return name


def _floats(parameters: dict[str, Any]) -> dict[str, Any]:
    """Single precision throughout: runtimes have no convolutions in double."""
    return {
        k: _floats(v) if isinstance(v, dict) else np.asarray(v, np.float32)
        for k, v in parameters.items()
    }


def _dense(to: Emitter, p: dict[str, Array], x: str) -> str:
    inputs = [x, to.constant(p["w"])]
    if "b" in p:
        inputs.append(to.constant(p["b"]))
    return to.node("Gemm", inputs, transB=1)


def _conv(
    to: Emitter, p: dict[str, Array], x: str, size: int, *, stride: int = 1, padding: int = 0
) -> str:
    """Our weight's columns run over (row, column, channel)."""
    weight = p["w"].reshape(len(p["w"]), size, size, -1).transpose(0, 3, 1, 2)
    return to.node(
        "Conv",
        [x, to.constant(weight), to.constant(p["b"])],
        kernel_shape=[size, size],
        strides=[stride, stride],
        pads=[padding] * 4,
    )


def _relu(to: Emitter, x: str) -> str:
    return to.node("Relu", [x])


def _pool(to: Emitter, x: str, size: int = 2, padding: int = 0) -> str:
    return to.node("MaxPool", [x], kernel_shape=[size] * 2, strides=[2, 2], pads=[padding] * 4)


def _group_norm(to: Emitter, p: dict[str, Array], x: str, groups: int = 16) -> str:
    shape = to.node("Shape", [x])
    grouped = to.node("Reshape", [x, to.constant(np.array([0, groups, -1]))])
    one, zero = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    normed = to.node(
        "InstanceNormalization", [grouped, to.constant(one), to.constant(zero)], epsilon=1e-5
    )
    back = to.node("Reshape", [normed, shape])
    scaled = to.node("Mul", [back, to.constant(p["scale"][:, None, None])])
    return to.node("Add", [scaled, to.constant(p["shift"][:, None, None])])


def _batch_norm(to: Emitter, p: dict[str, Array], statistics: dict[str, Array], x: str) -> str:
    four = (p["scale"], p["shift"], statistics["mean"], statistics["var"])
    return to.node("BatchNormalization", [x, *map(to.constant, four)], epsilon=1e-5)


def _norm(to: Emitter, p: Any, kept: Any, layer: str, x: str) -> str:
    """By batch statistics where the model has them (`kept`), else by group."""
    return _group_norm(to, p, x) if kept is None else _batch_norm(to, p, kept[layer], x)


def _flat(to: Emitter, x: str) -> str:
    return to.node("Flatten", [x], axis=1)


def _image(to: Emitter, x: str, shape: tuple[int, int, int]) -> str:
    """Samples as stored become (batch, channels, height, width)."""
    stored = to.node("Reshape", [x, to.constant(np.array([-1, *shape]))])
    return to.node("Transpose", [stored], perm=[0, 3, 1, 2])


def _linear(to: Emitter, p: Any, kept: Any, x: str, shape: Any) -> str:
    return _dense(to, p, _flat(to, x))


def _perceptron(to: Emitter, p: Any, kept: Any, x: str, shape: Any) -> str:
    h = _dense(to, p["layer0"], _flat(to, x))
    for i in range(1, len(p)):
        if kept is not None:
            h = _batch_norm(to, p[f"layer{i - 1}"]["norm"], kept[f"layer{i - 1}"], h)
        h = _dense(to, p[f"layer{i}"], _relu(to, h))
    return h


def _cnn(to: Emitter, p: Any, kept: Any, x: str, shape: Any) -> str:
    h = _image(to, x, shape)
    for layer in ("conv1", "conv2"):
        h = _pool(to, _relu(to, _conv(to, p[layer], h, 5, padding=2)))
    return _dense(to, p["out"], _relu(to, _dense(to, p["dense"], _flat(to, h))))


def _lenet(to: Emitter, p: Any, kept: Any, x: str, shape: Any) -> str:
    h = _image(to, x, shape)
    for layer in ("conv1", "conv2"):
        h = _pool(to, _relu(to, _conv(to, p[layer], h, 5)))
    h = _flat(to, h)
    for layer in ("dense1", "dense2"):
        h = _relu(to, _dense(to, p[layer], h))
    return _dense(to, p["out"], h)


def _resnet(to: Emitter, p: Any, kept: Any, x: str, shape: Any) -> str:
    h = _conv(to, p["conv"], _image(to, x, shape), 7, stride=2, padding=3)
    h = _pool(to, _relu(to, _norm(to, p["norm"], kept, "norm", h)), 3, 1)
    for name in sorted(name for name in p if name[0].isdigit()):
        q, stride = p[name], 2 if name[0] > "1" and name[1] == "a" else 1
        y = _conv(to, q["conv1"], h, 3, stride=stride, padding=1)
        y = _relu(to, _norm(to, q["norm1"], kept, f"{name}.norm1", y))
        y = _conv(to, q["conv2"], y, 3, padding=1)
        y = _norm(to, q["norm2"], kept, f"{name}.norm2", y)
        around = _conv(to, q["shortcut"], h, 1, stride=stride) if "shortcut" in q else h
        h = _relu(to, to.node("Add", [y, around]))
    return _dense(to, p["out"], _flat(to, to.node("GlobalAveragePool", [h])))


LAYERS: dict[str, Callable[[Emitter, Any, Any, str, Any], str]] = {
    "mlr": _linear,
    "linear": _linear,
    "mlp": _perceptron,
    "cnn": _cnn,
    "lenet": _lenet,
    "resnet": _resnet,
}
PICTURES = ("cnn", "lenet", "resnet")


def emit(to: Emitter, spec: ModelSpec, model: Any, x: str, inputs: tuple[int, ...]) -> str:
    """The layers of a shipped model; gives the name of its outputs, (batch, outputs)."""
    if spec.name not in LAYERS:
        raise InvalidInput(
            f"the model {spec.name!r} cannot be written as ONNX; the models that can are"
            f" {', '.join(LAYERS)}."
        )
    parameters, kept = model, None
    if isinstance(model, Fitted):
        parameters, kept = model.parameters, _floats(model.statistics)
    shape = image_shape(spec.name, inputs) if spec.name in PICTURES else None
    return LAYERS[spec.name](to, _floats(parameters), kept, x, shape)
