"""PyTorch on a client: a user's `nn.Module`, loss and data, trained by any method but
MOCHA (`pip install 'coterie[torch]'`; docs/torch.md).

What is mapped, mixed and sent is JAX: the module's parameters become a pytree that carries their
names. What a client computes on its data, a loss and its gradient, is done by JAX too, where it
knows the module's operators (`by_jax.py`); elsewhere it leaves the compiled program, by a callback:
one per mini-batch gradient, one client after the other (`by_callback.py`).
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import jax.numpy as jnp
import numpy as np

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.models.base import Fitted, Model, OwnLoss, Statistics
from coterie.models.torch.backend import Backend, Choice
from coterie.models.torch.callback import need_torch, reason
from coterie.models.torch.host import Host

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class TorchModel(Model):
    """What `torch_model` gives: a `Model` that can also be turned back into a module."""

    host: Any = None
    backend: Any = None

    def check(self, input_shape: tuple[int, ...], outputs: int, task: str) -> None:
        self.host.check(input_shape, outputs, task)
        self.backend.check(input_shape, outputs, task)

    def why_callback(
        self, input_shape: tuple[int, ...], outputs: int, task: str = "classification"
    ) -> str:
        """Why the module is not computed by JAX alone, for data of this kind; nothing, if it is."""
        return str(self.backend.why(input_shape, outputs, task))

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
            for name, leaf in zip(self.host.names, self.host.leaves(tree), strict=True):
                own[name].copy_(torch.tensor(np.asarray(leaf)))
        return cast("torch.nn.Module", made.eval())


def torch_model(
    module: torch.nn.Module,
    loss: Callable[..., Any] | None = None,
    *,
    l2: float = 0.0,
    shared_statistics: bool = False,
    backend: Choice = "auto",
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
    included, is in eval mode.

    `backend` says who computes it. "jax": JAX, all clients at once, compiled with the rest of a
    round; dropout then draws JAX's numbers. "callback": PyTorch, one client after the other, on the
    CPU. "auto": JAX where every operator is known and a few samples come out as in PyTorch, and
    nothing is drawn at random; else the callback, and a notice says why.
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
    device, values = Backend(host, backend), host.values()

    def init(key: Any) -> Any:
        return _nested({name: jnp.asarray(value) for name, value in values.items()})

    statistics = None
    if host.statistics:
        statistics = Statistics(
            lambda parameters, x, weight: device.train(host.leaves(parameters), x, weight),
            shared_statistics,
        )
    elif shared_statistics:
        raise InvalidInput(
            f"shared_statistics is true, but the module {host.label} has no running statistics."
        )

    def apply(parameters: Any, x: Any) -> Any:
        if isinstance(parameters, Fitted):
            return device.predict(parameters, x)
        return device.outputs(host.leaves(parameters), x)

    return TorchModel(
        init=init,
        apply=apply,
        l2=l2,
        name="torch",
        loss=OwnLoss(
            training=lambda parameters, x, y, weight, seed: device.loss(
                host.leaves(parameters), x, y, weight, seed
            ),
            samples=None if loss is None else device.samples,
        ),
        statistics=statistics,
        host=host,
        backend=device,
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
