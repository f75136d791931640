"""What a module computes as a list of ATen operators, found by `torch.export`, and done by JAX.

The list has no control flow and changes nothing in place, so it can be compiled, mapped over
clients and differentiated like any function of JAX.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from coterie.models.tiles import tiled
from coterie.models.torch.callback import reason
from coterie.models.torch.operators import OPERATORS, Unsupported
from coterie.models.torch.operators_layers import (
    OVER_BATCH,
    RANDOM,
    Rows,
    pooled_convolution,
)

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

EXAMPLES = 3
"""Samples of the batch on which a module is looked at."""

_WITHOUT_GRADIENT = ("detach", "detach_", "_set_grad_enabled", "wrap_with_set_grad_enabled")
"""What hides a value from the gradient; `torch.export` forgets it on the way to its operators."""

_MEANINGLESS = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "dtype")
"""Arguments that say where and how numbers lie. The type of a result is noted beside it."""


@dataclasses.dataclass(frozen=True)
class Program:
    """The operators, and where their inputs come from and their outputs go to."""

    nodes: tuple[Any, ...]
    values: Mapping[str, str]
    """The parameter or buffer that an input of the list is."""
    constants: Mapping[str, NDArray[Any]]
    inputs: tuple[str, ...]
    output: str
    changed: Mapping[str, str]
    """The buffers that are set anew, and to what."""
    any_batch: bool
    """Whether it is right for batches of every size."""

    @property
    def draws(self) -> str:
        """The first operator that draws random numbers, or nothing."""
        return next((_name(n) for n in self.nodes if _name(n) in RANDOM), "")

    def __call__(
        self, given: Mapping[str, Any], inputs: Sequence[Any], rows: Rows, key: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """The output, and the buffers as they are afterwards, by name."""
        known: dict[str, Any] = {n: jnp.asarray(value) for n, value in self.constants.items()}
        known.update((n, given[name]) for n, name in self.values.items())
        known.update(zip(self.inputs, inputs, strict=True))
        joined = {n.name: _joined(n) for n in self.nodes}
        skipped = {n.name for pair in joined.values() for n in pair}
        for i, node in enumerate(self.nodes):
            if joined[node.name]:
                known[node.name] = _at_once(joined[node.name][-1], known)
            elif node.name not in skipped:
                known[node.name] = _done(node, known, rows, key, i)
        return known[self.output], {name: known[n] for name, n in self.changed.items()}


def traced(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], names: Sequence[str], grows: bool
) -> Program:
    """The program of `module(*inputs)`. `names` are the parameters and buffers that are given to
    it; all others are constants. `grows`: the first axis is the batch.
    """
    import torch

    shapes = tuple({0: torch.export.Dim.AUTO} for _ in inputs) if grows else None
    with _quietly():
        try:
            # A copy: a module may keep what it computes, and here that is no numbers.
            plain = torch.export.export(
                copy.deepcopy(module), inputs, dynamic_shapes=shapes, strict=False
            )
        except Exception as error:
            raise Unsupported(
                "torch.export cannot write it as a list of operators, as where a value decides"
                f" what is computed ({reason(error)})"
            ) from error
        if any(_name(n) in _WITHOUT_GRADIENT and _varies(n) for n in plain.graph.nodes):
            raise Unsupported("it uses detach or no_grad, which torch.export forgets")
        try:
            found = plain.run_decompositions(_table())
        except Exception as error:
            raise Unsupported(f"torch.export cannot simplify it ({reason(error)})") from error
    return _program(module, found, names)


def _program(module: torch.nn.Module, found: ExportedProgram, names: Sequence[str]) -> Program:
    from torch.export.graph_signature import InputKind, OutputKind

    one = {id(p): name for name, p in module.named_parameters()}  # tied ones have one name
    also = {n: one[id(p)] for n, p in module.named_parameters(remove_duplicate=False)}
    values, constants, inputs = {}, {}, []
    for spec in found.graph_signature.input_specs:
        at, target = spec.arg.name, spec.target
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(at)
        elif also.get(target, target) in names:
            values[at] = also.get(target, target)
        else:
            kept = found.state_dict.get(target)
            kept = found.constants[target] if kept is None else kept
            constants[at] = kept.detach().numpy()
    output, changed = "", {}
    for out in found.graph_signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            output = out.arg.name
        elif out.kind is OutputKind.BUFFER_MUTATION and out.target in names:
            changed[out.target] = out.arg.name
    placed = {n.name: n for n in found.graph.nodes if n.op == "placeholder"}
    nodes = tuple(n for n in found.graph.nodes if n.op not in ("placeholder", "output"))
    for node in nodes:
        taught = not _aten(node) or _name(node) in (*OPERATORS, "sym_size")
        if (node.op != "call_function" or not taught) and not _name(node).startswith("_assert"):
            raise Unsupported(f"the operator {_title(node)} has no counterpart here")
    batch = placed[inputs[0]].meta["val"].shape[0]
    made = next((n.meta["val"].shape[:1] for n in nodes if n.name == output), ())
    # A loop over samples is written out for those it was looked at with.
    grows = not any(isinstance(rows, int) for rows in (batch, *made))
    return Program(
        tuple(n for n in nodes if not _name(n).startswith("_assert")),
        values,
        constants,
        tuple(inputs),
        output,
        changed,
        grows,
    )


def _done(node: Any, known: Mapping[str, Any], rows: Rows, key: Any, place: int) -> Any:
    """The result of one operator."""

    def value(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [value(a) for a in argument]
        return known[argument.name] if hasattr(argument, "op") else argument

    arguments = [value(a) for a in node.args]
    if not _aten(node):  # sizes, and one of several results
        return node.target(*arguments)
    name = _name(node)
    options = {n: value(a) for n, a in node.kwargs.items() if n not in _MEANINGLESS}
    if name == "sym_size":
        return arguments[0].shape[arguments[1]]
    if name in OVER_BATCH:
        options["rows"] = rows
    if name in RANDOM:
        options["key"] = jax.random.fold_in(key, place)
        options.pop("generator", None)
    try:
        found = OPERATORS[name](*arguments, **options)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(
            f"the operator {_title(node)} is not done here for what it is given ({reason(error)})"
        ) from error
    meant = node.meta.get("val")
    if isinstance(found, list | tuple):
        return [_as(f, m) for f, m in zip(found, meant, strict=True)]
    return _as(found, meant)


def _joined(node: Any) -> tuple[Any, ...]:
    """The ReLU and the convolution before a 2×2 maximum, where our own layers do all at once; they
    must be used for nothing else.
    """
    if _name(node) != "max_pool2d_with_indices" or node.kwargs:
        return ()
    before, sides, *rest = node.args
    if sides != [2, 2] or rest not in ([], [[]], [[2, 2]]):
        return ()
    if _name(before) != "relu" or len(before.users) != 1:
        return ()
    (convolution,) = before.args
    if _name(convolution) != "convolution" or len(convolution.users) != 1:
        return ()
    _, weight, _, stride, padding, dilation, transposed, _, groups = convolution.args
    square = len(set(weight.meta["val"].shape[2:])) == 1 == len(set(padding))
    simple = stride == dilation == [1, 1] and not transposed and groups == 1
    if not (square and simple and tiled(weight.meta["val"].shape[2], 1)):
        return ()
    return before, convolution


def _at_once(convolution: Any, known: Mapping[str, Any]) -> Any:
    """What the maximum gives."""
    x, weight, bias, _, padding, *_ = convolution.args
    added = None if bias is None else known[bias.name]
    return [pooled_convolution(known[x.name], known[weight.name], added, padding[0]), None]


def _as(found: Any, meant: Any) -> Any:
    """Of the type that PyTorch gives it."""
    if found is None or not hasattr(meant, "dtype"):
        return found
    wanted = jax.dtypes.canonicalize_dtype(_numpy_type(meant.dtype))
    return found if found.dtype == wanted else found.astype(wanted)


@cache
def _numpy_type(dtype: torch.dtype) -> Any:
    import torch

    return jnp.bfloat16 if dtype == torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype


def _varies(node: Any) -> bool:
    """Whether a result depends on parameters or samples, and not on constants alone."""
    before, seen = [node], set()
    while before:
        one = before.pop()
        if one.op == "placeholder" and not one.name.startswith(("b_", "c_")):
            return True
        fresh = [n for n in one.all_input_nodes if n not in seen]
        seen.update(fresh)
        before += fresh
    return False


def _aten(node: Any) -> bool:
    return hasattr(node.target, "overloadpacket")


def _name(node: Any) -> str:
    """Of an operator, without its overload."""
    found = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(found, "__name__", found))


def _title(node: Any) -> str:
    return f"aten.{_name(node)}" if _aten(node) else _name(node)


@cache
def _table() -> dict[Any, Any]:
    """PyTorch's own ways to write operators by simpler ones, where JAX is not taught them here."""
    import torch

    table = dict(torch.export.default_decompositions().items())
    return {op: way for op, way in table.items() if op.overloadpacket.__name__ not in OPERATORS}


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without PyTorch's warnings, log lines and graphs: we say what matters, in one sentence."""

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        away = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(away):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(away):
                yield
    finally:
        logging.disable(before)
