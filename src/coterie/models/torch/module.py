"""PyTorch on a client: a user's `nn.Module`, loss and data, trained by any method but
MOCHA (`pip install 'coterie[torch]'`; docs/torch.md).

What is mapped, mixed and sent stays JAX: the module's parameters become a pytree that carries their
names. Only what a client computes on its data, a loss and its gradient, leaves the compiled
program, by a callback: one per mini-batch gradient, one client after the other.

Inside a callback nothing of JAX is called: a program that waits for its callback, which waits for
the program's threads, would hang. One lock is around all of it, because modules and PyTorch's
generator are shared by the threads that XLA calls back from.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.models.base import Model, OwnLoss

if TYPE_CHECKING:
    import torch

LOCK = threading.RLock()


def need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            "PyTorch is not installed, but this needs it: pip install 'coterie[torch]'."
        ) from error


def said(error: BaseException) -> str:
    """What an error of PyTorch's says first, for a sentence of ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else 'no message'}"


def call_back(function: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    """function(*arguments) in Python, on numpy arrays, from inside a compiled program; several
    clients one after the other.

    Not by `jax.pure_callback`, which makes JAX arrays of the arguments first: that is JAX inside a
    callback, takes several times as long as a small gradient, and on XLA's threads, which do not
    know of the run's precision, it rounds float64 to float32.
    """
    from jax.experimental.buffer_callback import buffer_callback

    def on_buffers(_: Any, out: Any, *given: Any) -> None:
        found = function(*jax.tree.map(np.asarray, given))
        for place, value in zip(jax.tree.leaves(out), jax.tree.leaves(found), strict=True):
            np.copyto(np.asarray(place), value, casting="no")

    return buffer_callback(on_buffers, shapes, vmap_method="sequential")(*arguments)


@contextlib.contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """PyTorch's generator starts from `seed` inside, and is afterwards as it was before."""
    import torch

    kept = torch.default_generator.get_state()
    try:
        torch.default_generator.manual_seed(
            seed
        )  # torch.manual_seed would reach for other devices too
        yield
    finally:
        torch.default_generator.set_state(kept)


class _Host:
    """The side that computes with PyTorch.

    Methods whose names begin with `on_` are callbacks: arrays in, numpy arrays out.
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any] | None) -> None:
        # A copy, so that what the user does with the module later changes nothing here.
        self.module = copy.deepcopy(module).cpu()
        self.loss = loss
        self.names = [name for name, p in self.module.named_parameters() if p.requires_grad]
        self._modules: dict[Any, torch.nn.Module] = {}
        self._losses: dict[Any, Callable[..., Any]] = {}
        self._widths: dict[Any, tuple[int, ...]] = {}

    def values(self) -> dict[str, NDArray[Any]]:
        """The initial parameters."""
        import torch

        own = dict(self.module.named_parameters())
        wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
        return {
            name: own[name].detach().to(wide.get(own[name].dtype, own[name].dtype)).numpy().copy()
            for name in self.names
        }

    def of(self, dtype: torch.dtype, training: bool) -> torch.nn.Module:
        """The module in a precision and a mode.

        Its trainable parameters are never used, its constants are.
        """
        if (dtype, training) not in self._modules:
            self._modules[dtype, training] = copy.deepcopy(self.module).to(dtype).train(training)
        return self._modules[dtype, training]

    def outputs(
        self, parameters: Sequence[torch.Tensor], x: torch.Tensor, training: bool
    ) -> torch.Tensor:
        from torch.func import functional_call

        return cast(
            "torch.Tensor",
            functional_call(
                self.of(x.dtype, training), dict(zip(self.names, parameters, strict=True)), (x,)
            ),
        )

    def losses(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean loss, or one per sample, as the loss gives it.

        Targets of a regression are handed over in the shape of the outputs.
        """
        import torch

        if y.is_floating_point():
            y = y.reshape(outputs.shape)
        if self.loss is None:
            if not y.is_floating_point():
                return torch.nn.functional.cross_entropy(outputs, y, reduction="none")
            return 0.5 * (outputs - y).square().sum(-1)
        dtype = outputs.dtype
        if (
            dtype not in self._losses
        ):  # the weights of classes, say, must have the outputs' precision
            self._losses[dtype] = (
                copy.deepcopy(self.loss).to(dtype)
                if isinstance(self.loss, torch.nn.Module)
                else self.loss
            )
        found = self._losses[dtype](outputs, y)
        return cast("torch.Tensor", found)

    # -- callbacks ---------------------------------------------------------------------------------

    def on_outputs(self, parameters: Any, x: Any) -> Any:
        import torch

        with LOCK, torch.no_grad():
            return self.outputs(*_tensors(parameters, x), training=False).numpy()

    def on_outputs_back(self, parameters: Any, x: Any, along: Any) -> Any:
        """The gradients of ⟨outputs, along⟩."""
        import torch

        with LOCK, torch.enable_grad():
            tensors, inputs = _tensors(parameters, x)
            tensors = [p.requires_grad_() for p in tensors]
            out = self.outputs(tensors, inputs, training=False)
            found = torch.autograd.grad(
                out, tensors, torch.tensor(np.asarray(along)), materialize_grads=True
            )
        return [g.numpy() for g in found]

    def on_samples(self, outputs: Any, y: Any) -> Any:
        import torch

        with LOCK, torch.no_grad():
            out, targets = torch.tensor(np.asarray(outputs)), _targets(y)
            found = self.losses(out, targets)
            if found.ndim == 0:  # a mean: of each sample by itself
                found = torch.stack(
                    [self.losses(out[i : i + 1], targets[i : i + 1]) for i in range(len(out))]
                )
            return found.to(out.dtype).numpy()

    def on_loss(self, parameters: Any, x: Any, y: Any, weight: Any) -> Any:
        import torch

        with LOCK, torch.no_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            if not len(inputs):
                return np.zeros((), inputs.numpy().dtype)
            return (
                self.losses(self.outputs(tensors, inputs, training=False), targets)
                .mean()
                .to(inputs.dtype)
                .numpy()
            )

    def on_gradient(self, parameters: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
        import torch

        with LOCK, _drawn_from(int(np.asarray(seed))), torch.enable_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            if not len(inputs):
                return np.zeros((), inputs.numpy().dtype), [
                    np.zeros_like(np.asarray(p)) for p in parameters
                ]
            tensors = [p.requires_grad_() for p in tensors]
            value = self.losses(self.outputs(tensors, inputs, training=True), targets).mean()
            found = torch.autograd.grad(value, tensors, materialize_grads=True)
        return value.detach().to(inputs.dtype).numpy(), [g.numpy() for g in found]

    def on_curvature(
        self, parameters: Any, direction: Any, x: Any, y: Any, weight: Any, seed: Any
    ) -> Any:
        """The Hessian of the loss times a direction."""
        import torch

        with LOCK, _drawn_from(int(np.asarray(seed))), torch.enable_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            nothing = [np.zeros_like(np.asarray(p)) for p in parameters]
            if not len(inputs):
                return nothing
            tensors = [p.requires_grad_() for p in tensors]
            value = self.losses(self.outputs(tensors, inputs, training=True), targets).mean()
            first = torch.autograd.grad(value, tensors, create_graph=True, materialize_grads=True)
            slope = sum(
                (g * torch.tensor(np.asarray(v))).sum()
                for g, v in zip(first, direction, strict=True)
            )
            if (
                not isinstance(slope, torch.Tensor) or not slope.requires_grad
            ):  # linear in its parameters
                return nothing
            return [g.numpy() for g in torch.autograd.grad(slope, tensors, materialize_grads=True)]

    @staticmethod
    def _real(
        parameters: Any, x: Any, y: Any, weight: Any
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        """Tensors of the parameters and of the samples that count; a module never sees padding."""
        tensors, inputs = _tensors(parameters, x)
        keep = np.flatnonzero(np.asarray(weight) > 0)
        return tensors, inputs[keep], _targets(y)[keep]

    # -- before a run ------------------------------------------------------------------------------

    def shape_of_outputs(self, x_shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
        """Of a batch of this shape; found by trying a sample."""
        if x_shape[1:] not in self._widths:
            self._widths[x_shape[1:]] = self._try(np.zeros((1, *x_shape[1:]), dtype)).shape[1:]
        return (x_shape[0], *self._widths[x_shape[1:]])

    def _try(self, x: NDArray[Any], training: bool = False) -> torch.Tensor:
        import torch

        try:
            with LOCK, _drawn_from(0), torch.no_grad():
                tensors, inputs = _tensors([v.astype(x.dtype) for v in self.values().values()], x)
                found = self.outputs(tensors, inputs, training)
        except Exception as error:
            raise InvalidInput(
                f"the module {self.label} fails on inputs of shape {x.shape} in"
                f" {'training' if training else 'eval'} mode ({said(error)})."
            ) from error
        if not isinstance(found, torch.Tensor) or found.ndim < 1:
            raise InvalidInput(
                f"the module {self.label} gives {type(found).__name__}, but must give one tensor of"
                " shape (batch, outputs)."
            )
        return found

    @property
    def label(self) -> str:
        return type(self.module).__name__

    def check(self, input_shape: tuple[int, ...], outputs: int, task: str) -> None:
        """Refuse a module or loss that does not fit the data, or whose outputs are not a function
        of parameters and sample alone.
        """
        import torch

        pair = np.stack([np.zeros(input_shape, np.float32), np.ones(input_shape, np.float32)])
        found = self._try(pair)
        if tuple(found.shape) != (2, outputs):
            raise InvalidInput(
                f"the module {self.label} gives outputs of shape {tuple(found.shape)} for 2 samples"
                f" of shape {input_shape}, but must give (2, {outputs})."
            )
        bound = InvalidInput(
            f"the module {self.label} gives a sample other outputs when other samples are beside"
            " it, even in eval mode (as batch normalisation without running statistics does), but"
            " must not; use group or layer normalisation."
        )
        try:
            alone = torch.cat([self._try(pair[:1]), self._try(pair[1:])])
        except InvalidInput as error:
            raise bound from error
        if not torch.allclose(alone, found, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise bound
        trained = self.of(torch.float32, True)
        before = {name: b.clone() for name, b in trained.named_buffers()}
        self._try(pair, training=True)
        for name, buffer in trained.named_buffers():
            if not torch.equal(before[name], buffer):
                self._modules.clear()
                raise InvalidInput(
                    f"the module {self.label} changes its buffer {name!r} in training (as batch"
                    " normalisation does its running statistics), but all that it learns must be"
                    " in its parameters; use group or layer normalisation."
                )
        self._check_loss(found, task)

    def _check_loss(self, outputs: torch.Tensor, task: str) -> None:
        """A loss must be a mean, or one number per sample: a sum would make the step grow with the
        batch.
        """
        import torch

        if self.loss is None:
            return
        width = outputs.shape[1]
        y = _targets(
            np.zeros(2, np.int64) if task == "classification" else np.zeros((2, width), np.float32)
        )
        try:
            with LOCK, _drawn_from(0), torch.no_grad():
                twice, once = (
                    self.losses(outputs[:1].repeat(2, 1), y),
                    self.losses(outputs[:1], y[:1]),
                )
        except Exception as error:
            raise InvalidInput(
                f"the loss fails on outputs of shape (2, {width}) and targets of shape"
                f" {tuple(y.shape)} ({said(error)})."
            ) from error
        alike = isinstance(twice, torch.Tensor) and isinstance(once, torch.Tensor)
        if not alike or (tuple(twice.shape), tuple(once.shape)) not in (((), ()), ((2,), (1,))):
            shape = tuple(twice.shape) if isinstance(twice, torch.Tensor) else type(twice).__name__
            raise InvalidInput(
                f"the loss of 2 samples is of shape {shape}, but must be one number, their mean, or"
                " one number per sample, (2,)."
            )
        if (
            twice.ndim == 0
            and math.isfinite(float(once))
            and not math.isclose(float(twice), float(once), rel_tol=1e-3, abs_tol=1e-6)
        ):
            raise InvalidInput(
                f"the loss of a sample taken twice is {float(twice):.4g} and of the sample alone"
                f" {float(once):.4g}, but must be the same: a mean over samples, not a sum."
            )


def _tensors(parameters: Any, x: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Copies, since what a callback is given belongs to the running program and a module may work
    in place.
    """
    import torch

    return [torch.tensor(np.asarray(p)) for p in parameters], torch.tensor(np.asarray(x))


def _targets(y: Any) -> torch.Tensor:
    import torch

    array = np.asarray(y)
    return torch.tensor(
        array if np.issubdtype(array.dtype, np.floating) else array.astype(np.int64)
    )


class _Device:
    """The side that JAX traces: functions of leaves in the order of `host.names`, each a callback
    with a derivative.
    """

    def __init__(self, host: _Host) -> None:
        self.host = host
        self.outputs = self._outputs()
        self.loss = self._loss()

    def leaves(self, tree: Any) -> list[Any]:
        out = []
        for name in self.host.names:
            place = tree
            for word in name.split("."):
                if not isinstance(place, dict) or word not in place:
                    raise InvalidInput(
                        f"the parameters have no {name!r}, but the module {self.host.label} has."
                    )
                place = place[word]
            out.append(place)
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
        with torch.no_grad():
            for name, leaf in zip(self.host.names, _Device(self.host).leaves(tree), strict=True):
                own[name].copy_(torch.tensor(np.asarray(leaf)))
        return cast("torch.nn.Module", made.eval())


def torch_model(
    module: torch.nn.Module, loss: Callable[..., Any] | None = None, *, l2: float = 0.0
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
    that training does not change are constants: they are neither trained nor sent. Gradients are
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
        host = _Host(module, loss)
    except Exception as error:
        raise InvalidInput(
            f"the module {type(module).__name__} cannot be copied ({said(error)})."
        ) from error
    if not host.names:
        raise InvalidInput(
            f"the module {host.label} has no parameters to train; at least one must require a"
            " gradient."
        )
    device, values = _Device(host), host.values()

    def init(key: Any) -> Any:
        return _nested({name: jnp.asarray(value) for name, value in values.items()})

    return TorchModel(
        init=init,
        apply=lambda parameters, x: device.outputs(device.leaves(parameters), x),
        l2=l2,
        name="torch",
        loss=OwnLoss(
            training=lambda parameters, x, y, weight, seed: device.loss(
                device.leaves(parameters), x, y, weight, seed
            ),
            samples=None if loss is None else device.samples,
        ),
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
        place = out
        for word in path:
            place = place.setdefault(word, OrderedDict())
        place[last] = value
    return out
