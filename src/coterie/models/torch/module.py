"""PyTorch on a client: a user's `nn.Module`, loss and data, trained by any method but
MOCHA (`pip install 'coterie[torch]'`; docs/torch.md).

What is mapped, mixed and sent stays JAX: the module's parameters become a pytree that carries their
names. Only what a client computes on its data, a loss and its gradient, leaves the compiled
program, by a callback: one per mini-batch gradient, one client after the other.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.models.base import Fitted, Model, OwnLoss, Statistics
from coterie.models.torch.callback import call_back, need_torch, reason
from coterie.models.torch.host import Host

if TYPE_CHECKING:
    import torch


class _Device:
    """The side that JAX traces: functions of leaves in the order of `host.names`, each a callback
    with a derivative.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.outputs = self._outputs()
        self.loss = self._loss()

    def train(self, leaves: Any, x: Any, weight: Any) -> Any:
        """The outputs in training mode, and the statistics of the batch by name."""
        host = self.host
        own = dict(host.module.named_buffers())
        shape = host.shape_of_outputs(x.shape, x.dtype)
        shapes = [jax.ShapeDtypeStruct(tuple(own[n].shape), x.dtype) for n in host.statistics]
        out = jax.ShapeDtypeStruct(shape, x.dtype)
        stopped = jax.lax.stop_gradient(leaves)
        outputs, found = call_back(host.on_statistics, (out, shapes), stopped, x, weight)
        return outputs, dict(zip(host.statistics, found, strict=True))

    def predict(self, fitted: Fitted, x: Any) -> Any:
        """The outputs by given statistics; evaluation only, so without a derivative."""
        host = self.host
        shape = jax.ShapeDtypeStruct(host.shape_of_outputs(x.shape, x.dtype), x.dtype)
        statistics = [fitted.statistics[name] for name in host.statistics]
        leaves = self.leaves(fitted.parameters)
        return call_back(host.on_outputs, shape, leaves, x, statistics)

    def leaves(self, tree: Any) -> list[Any]:
        out = []
        for name in self.host.names:
            node = tree
            for word in name.split("."):
                if not isinstance(node, dict) or word not in node:
                    raise InvalidInput(
                        f"the parameters have no {name!r}, but the module {self.host.label} has."
                    )
                node = node[word]
            out.append(node)
        return out

    def _outputs(self) -> Callable[..., Any]:
        host = self.host

        @jax.custom_vjp
        def outputs(leaves: Any, x: Any) -> Any:
            shape = host.shape_of_outputs(x.shape, x.dtype)
            return call_back(host.on_outputs, jax.ShapeDtypeStruct(shape, x.dtype), leaves, x)

        def forward(leaves: Any, x: Any) -> Any:
            return outputs(leaves, x), (leaves, x)

        def backward(kept: Any, along: Any) -> Any:
            leaves, x = kept
            return call_back(host.on_outputs_back, _alike(leaves), leaves, x, along), None

        outputs.defvjp(forward, backward)
        return cast(Callable[..., Any], outputs)

    def _loss(self) -> Callable[..., Any]:
        host = self.host

        @jax.custom_jvp
        def gradient(leaves: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
            """The mean loss and its gradient, in one call."""
            return call_back(
                host.on_gradient,
                (jax.ShapeDtypeStruct((), x.dtype), _alike(leaves)),
                leaves,
                x,
                y,
                weight,
                seed,
            )

        @gradient.defjvp
        def along(primals: Any, tangents: Any) -> Any:
            # For Hessian-vector products: the derivative along a direction of the parameters.
            leaves, direction = primals[0], tangents[0]
            value, slopes = gradient(*primals)
            turned = call_back(host.on_curvature, _alike(leaves), leaves, direction, *primals[1:])
            return (value, slopes), (
                sum(jnp.vdot(g, v) for g, v in zip(slopes, direction, strict=True)),
                turned,
            )

        # Where a loss is differentiated the module is in training mode; where only its value is
        # asked for, in eval mode.
        @jax.custom_vjp
        def loss(leaves: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
            return call_back(host.on_loss, jax.ShapeDtypeStruct((), x.dtype), leaves, x, y, weight)

        def backward(slopes: Any, along: Any) -> Any:
            return [along * g for g in slopes], None, None, None, None

        loss.defvjp(gradient, backward)
        return cast(Callable[..., Any], loss)

    def samples(self, outputs: Any, y: Any) -> Any:
        return call_back(
            self.host.on_samples,
            jax.ShapeDtypeStruct(outputs.shape[:1], outputs.dtype),
            jax.lax.stop_gradient(outputs),
            y,
        )


def _alike(leaves: Any) -> Any:
    return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]


@dataclasses.dataclass(frozen=True)
class TorchModel(Model):
    """What `torch_model` gives: a `Model` that can also be turned back into a module."""

    host: Any = None

    def check(self, input_shape: tuple[int, ...], outputs: int, task: str) -> None:
        self.host.check(input_shape, outputs, task)

    def module(self, parameters: Vector | Any) -> torch.nn.Module:
        """A new module, in eval mode, with these parameters, e.g.
        `model.module(result.personal(3))`.
        """
        import torch

        tree = parameters.tree if isinstance(parameters, Vector) else parameters
        made = copy.deepcopy(self.host.module)
        own = dict(made.named_parameters())
        if isinstance(tree, Fitted):
            buffers = dict(made.named_buffers())
            for name, value in tree.statistics.items():
                buffers[name].copy_(torch.tensor(np.asarray(value)))
            tree = tree.parameters
        with torch.no_grad():
            for name, leaf in zip(self.host.names, _Device(self.host).leaves(tree), strict=True):
                own[name].copy_(torch.tensor(np.asarray(leaf)))
        return cast("torch.nn.Module", made.eval())


def torch_model(
    module: torch.nn.Module,
    loss: Callable[..., Any] | None = None,
    *,
    l2: float = 0.0,
    shared_statistics: bool = False,
) -> TorchModel:
    """A model from a PyTorch module, for every method (except MOCHA, which needs its linear model
    in closed form).

    `module(inputs)` must give (batch, outputs). `loss(outputs, targets)` gives the mean over the
    samples or one number per sample; nothing: cross-entropy or half the squared error, as
    everywhere in coterie. Class numbers come as int64 of shape (batch,), targets of a regression as
    floats in the shape of the outputs.

    Parameters are a pytree with the module's names, {"fc1": {"weight": …, "bias": …}}, in the
    module's order, and begin with the module's own values, whatever the seed of a run (build the
    module under `torch.manual_seed` for others). Frozen ones (`requires_grad=False`) and buffers
    that training does not change are constants: they are neither trained nor sent. The running
    statistics of batch normalisation are each client's own: worked out from its data when its model
    is evaluated or exported, never sent; `shared_statistics` makes them parameters. Gradients are
    taken in training mode, dropout drawn from seed, round, client and step; everything else, scores
    included, is in eval mode. All is computed on the CPU.
    """
    need_torch()
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"the module is {_kind(module)}, but must be a torch.nn.Module.")
    if loss is not None and not callable(loss):
        raise InvalidInput(
            f"the loss is {_kind(loss)}, but must be a function loss(outputs, targets)."
        )
    if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise InvalidInput(
            "the loss has parameters of its own, which would never be trained; put them into the"
            " module."
        )
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise InvalidInput(
                f"the parameter {name!r} has no shape yet; call the module once on a sample first."
            )
        if not parameter.is_floating_point():
            raise InvalidInput(
                f"the parameter {name!r} is of type {str(parameter.dtype).removeprefix('torch.')},"
                " but must be floating point."
            )
    try:
        host = Host(module, loss)
    except Exception as error:
        raise InvalidInput(
            f"the module {type(module).__name__} cannot be copied ({reason(error)})."
        ) from error
    if not host.names:
        raise InvalidInput(
            f"the module {host.label} has no parameters to train; at least one must require a"
            " gradient."
        )
    device, values = _Device(host), host.values()

    def init(key: Any) -> Any:
        return _nested({name: jnp.asarray(value) for name, value in values.items()})

    statistics = None
    if host.statistics:
        statistics = Statistics(
            lambda parameters, x, weight: device.train(device.leaves(parameters), x, weight),
            shared_statistics,
        )
    elif shared_statistics:
        raise InvalidInput(
            f"shared_statistics is true, but the module {host.label} has no running statistics."
        )

    def apply(parameters: Any, x: Any) -> Any:
        if isinstance(parameters, Fitted):
            return device.predict(parameters, x)
        return device.outputs(device.leaves(parameters), x)

    return TorchModel(
        init=init,
        apply=apply,
        l2=l2,
        name="torch",
        loss=OwnLoss(
            training=lambda parameters, x, y, weight, seed: device.loss(
                device.leaves(parameters), x, y, weight, seed
            ),
            samples=None if loss is None else device.samples,
        ),
        statistics=statistics,
        host=host,
    )


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"of type {type(value).__name__}"


def _nested(flat: dict[str, Any]) -> OrderedDict[str, Any]:
    """{"fc1.weight": …} as {"fc1": {"weight": …}}; ordered, so that the last layer is the module's
    last and not the alphabet's.
    """
    out: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *path, last = name.split(".")
        node = out
        for word in path:
            node = node.setdefault(word, OrderedDict())
        node[last] = value
    return out
