"""The side that computes with PyTorch: a module's outputs, losses and gradients."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.models.torch.callback import LOCK, reason

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def drawn_from(seed: int) -> Iterator[None]:
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


class Host:
    """The side that computes with PyTorch.

    Methods whose names begin with `on_` are callbacks: arrays in, numpy arrays out.
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any] | None) -> None:
        # A copy, so that what the user does with the module later changes nothing here.
        self.module = copy.deepcopy(module).cpu()
        self.loss = loss
        self.names = [name for name, p in self.module.named_parameters() if p.requires_grad]
        self.statistics = _running(self.module)
        """The buffers that hold running statistics (batch normalisation), by name."""
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

    def leaves(self, tree: Any) -> list[Any]:
        """The parameters of a tree that `torch_model` made, in the order of `names`."""
        out = []
        for name in self.names:
            node = tree
            for word in name.split("."):
                if not isinstance(node, dict) or word not in node:
                    raise InvalidInput(
                        f"the parameters have no {name!r}, but the module {self.label} has."
                    )
                node = node[word]
            out.append(node)
        return out

    def of(self, dtype: torch.dtype, training: bool) -> torch.nn.Module:
        """The module in a precision and a mode.

        Its trainable parameters are never used, its constants are. In training mode running
        statistics become those of the batch at once (momentum 1).
        """
        if (dtype, training) not in self._modules:
            made = copy.deepcopy(self.module).to(dtype).train(training)
            for part in made.modules():
                if training and getattr(part, "running_mean", None) is not None:
                    part.momentum = 1.0  # type: ignore[assignment]
            self._modules[dtype, training] = made
        return self._modules[dtype, training]

    def outputs(
        self,
        parameters: Sequence[torch.Tensor],
        x: torch.Tensor,
        training: bool,
        statistics: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """`statistics` are those to predict by; in training mode, those of the batch are written
        into them. None: the module's own, of which nothing is changed.
        """
        from torch.func import functional_call

        module = self.of(x.dtype, training)
        if statistics is None:
            own = dict(module.named_buffers())
            statistics = [own[name].clone() for name in self.statistics]
        given = {
            **dict(zip(self.names, parameters, strict=True)),
            **dict(zip(self.statistics, statistics, strict=True)),
        }
        return cast("torch.Tensor", functional_call(module, given, (x,)))

    def losses(
        self, outputs: torch.Tensor, y: torch.Tensor, loss: Callable[..., Any] | None = None
    ) -> torch.Tensor:
        """The mean loss, or one per sample, as the loss gives it (`loss`: a copy of it).

        Targets of a regression are handed over in the shape of the outputs.
        """
        import torch

        if y.is_floating_point():
            y = y.reshape(outputs.shape)
        if self.loss is None:
            if not y.is_floating_point():
                return torch.nn.functional.cross_entropy(outputs, y, reduction="none")
            return 0.5 * (outputs - y).square().sum(-1)
        return cast("torch.Tensor", (loss or self.loss_of(outputs.dtype))(outputs, y))

    def loss_of(self, dtype: torch.dtype) -> Callable[..., Any]:
        """The loss in a precision: weights of classes, say, must have the outputs'."""
        import torch

        assert self.loss is not None
        if dtype not in self._losses:
            self._losses[dtype] = (
                copy.deepcopy(self.loss).to(dtype)
                if isinstance(self.loss, torch.nn.Module)
                else self.loss
            )
        return self._losses[dtype]

    # -- callbacks ---------------------------------------------------------------------------------

    def on_outputs(self, parameters: Any, x: Any, statistics: Any = None) -> Any:
        import torch

        with LOCK, torch.no_grad():
            kept = None if statistics is None else _tensors(statistics, x)[0]
            return self.outputs(*_tensors(parameters, x), False, kept).numpy()

    def on_statistics(self, parameters: Any, x: Any, weight: Any) -> Any:
        """The outputs in training mode, zeros for padding, and the statistics of the batch."""
        import torch

        with LOCK, drawn_from(0), torch.no_grad():
            tensors, inputs = _tensors(parameters, x)
            keep = np.flatnonzero(np.asarray(weight) > 0)
            own = dict(self.of(inputs.dtype, True).named_buffers())
            found = [own[name].clone() for name in self.statistics]
            real = self.outputs(tensors, self._enough(inputs[keep]), True, found)[: len(keep)]
            out = torch.zeros((len(inputs), *real.shape[1:]), dtype=real.dtype)
            out[keep] = real
        return out.numpy(), [b.numpy() for b in found]

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

        with LOCK, drawn_from(0), torch.no_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            if not len(inputs):
                return np.zeros((), inputs.numpy().dtype)
            by_batch = bool(self.statistics)  # without statistics of the client's own
            if by_batch:
                inputs, targets = self._enough(inputs), self._enough(targets)
            return (
                self.losses(self.outputs(tensors, inputs, training=by_batch), targets)
                .mean()
                .to(inputs.dtype)
                .numpy()
            )

    def on_gradient(self, parameters: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
        import torch

        with LOCK, drawn_from(int(np.asarray(seed))), torch.enable_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            if not len(inputs):
                return np.zeros((), inputs.numpy().dtype), [
                    np.zeros_like(np.asarray(p)) for p in parameters
                ]
            tensors = [p.requires_grad_() for p in tensors]
            if self.statistics:
                inputs, targets = self._enough(inputs), self._enough(targets)
            value = self.losses(self.outputs(tensors, inputs, training=True), targets).mean()
            found = torch.autograd.grad(value, tensors, materialize_grads=True)
        return value.detach().to(inputs.dtype).numpy(), [g.numpy() for g in found]

    def on_curvature(
        self, parameters: Any, direction: Any, x: Any, y: Any, weight: Any, seed: Any
    ) -> Any:
        """The Hessian of the loss times a direction."""
        import torch

        with LOCK, drawn_from(int(np.asarray(seed))), torch.enable_grad():
            tensors, inputs, targets = self._real(parameters, x, y, weight)
            nothing = [np.zeros_like(np.asarray(p)) for p in parameters]
            if not len(inputs):
                return nothing
            tensors = [p.requires_grad_() for p in tensors]
            if self.statistics:
                inputs, targets = self._enough(inputs), self._enough(targets)
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

    def _enough(self, rows: torch.Tensor) -> torch.Tensor:
        """A sample alone twice, where a module needs several: PyTorch refuses to normalise one."""
        return rows.repeat(2, *(1,) * (rows.ndim - 1)) if len(rows) == 1 else rows

    # -- before a run ------------------------------------------------------------------------------

    def shape_of_outputs(self, x_shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
        """Of a batch of this shape; found by trying a sample."""
        if x_shape[1:] not in self._widths:
            self._widths[x_shape[1:]] = self._try(np.zeros((1, *x_shape[1:]), dtype)).shape[1:]
        return (x_shape[0], *self._widths[x_shape[1:]])

    def _try(self, x: NDArray[Any], training: bool = False) -> torch.Tensor:
        import torch

        try:
            with LOCK, drawn_from(0), torch.no_grad():
                tensors, inputs = _tensors([v.astype(x.dtype) for v in self.values().values()], x)
                found = self.outputs(tensors, inputs, training)
        except Exception as error:
            raise InvalidInput(
                f"the module {self.label} fails on inputs of shape {x.shape} in"
                f" {'training' if training else 'eval'} mode ({reason(error)})."
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
            counts = name.endswith("num_batches_tracked")
            if not counts and not torch.equal(before[name], buffer):
                self._modules.clear()
                raise InvalidInput(
                    f"the module {self.label} changes its buffer {name!r} in training, but all that"
                    " it learns must be in its parameters or in the running_mean and running_var of"
                    " a layer."
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
            with LOCK, drawn_from(0), torch.no_grad():
                twice, once = (
                    self.losses(outputs[:1].repeat(2, 1), y),
                    self.losses(outputs[:1], y[:1]),
                )
        except Exception as error:
            raise InvalidInput(
                f"the loss fails on outputs of shape (2, {width}) and targets of shape"
                f" {tuple(y.shape)} ({reason(error)})."
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


def _running(module: torch.nn.Module) -> list[str]:
    """The names of running statistics: running_mean and running_var, where a layer keeps them."""
    names = {name for name, buffer in module.named_buffers() if buffer is not None}
    return sorted(n for n in names if n.rpartition(".")[2] in ("running_mean", "running_var"))


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
