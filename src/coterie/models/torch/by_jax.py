"""A module computed by JAX: the operators that `torch.export` finds in it (`graph.py`), compiled
with the rest of a round and mapped over all clients.

What it computes is what the callback computes (`by_callback.py`, `Host`): gradients in training
mode, everything else in eval mode, and nothing of padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from coterie.models.base import Fitted
from coterie.models.torch.callback import LOCK
from coterie.models.torch.graph import EXAMPLES, Program, traced
from coterie.models.torch.host import Host, drawn_from
from coterie.models.torch.operators import Unsupported
from coterie.models.torch.operators_layers import Rows

if TYPE_CHECKING:
    import torch


class ByJax:
    """Functions of leaves in the order of `host.names`, as `ByCallback` has them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.loss = self._loss()
        self._programs: dict[Any, Program] = {}

    # -- the module --------------------------------------------------------------------------------

    def outputs(self, leaves: Any, x: Any) -> Any:
        return self._forward(leaves, x, _all(x))[0]

    def predict(self, fitted: Fitted, x: Any) -> Any:
        leaves = self.host.leaves(fitted.parameters)
        return self._forward(leaves, x, _all(x), statistics=fitted.statistics)[0]

    def train(self, leaves: Any, x: Any, weight: Any) -> Any:
        """The outputs in training mode, zeros for padding, and the statistics of the batch."""
        x, rows = _real(x, weight)
        leaves = jax.lax.stop_gradient(leaves)
        out, found = self._forward(leaves, x, rows, training=True, seed=0)
        out = jnp.where(rows.real.reshape(-1, *(1,) * (out.ndim - 1)), out, 0)
        return out, {name: found[name] for name in self.host.statistics}

    def _forward(
        self,
        leaves: Any,
        x: Any,
        rows: Rows,
        *,
        training: bool = False,
        seed: Any = None,
        statistics: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        host = self.host
        if statistics is None:
            own = dict(host.module.named_buffers())
            statistics = {n: jnp.asarray(own[n].numpy(), x.dtype) for n in host.statistics}
        program = self.program(x.shape, x.dtype, training)
        key = jax.random.key(seed) if program.draws else None
        given = dict(zip(host.names, leaves, strict=True)) | statistics
        return program(given, [x], rows, key)

    def program(self, shape: tuple[int, ...], dtype: Any, training: bool) -> Program:
        """Of the module, for a batch of this shape."""
        batch, *sample = shape
        asked = (tuple(sample), np.dtype(dtype), training)
        for size in (None, batch):
            if (*asked, size) in self._programs:
                return self._programs[*asked, size]
        found = self._traced(EXAMPLES, *asked)
        if not found.any_batch and batch != EXAMPLES:
            found = self._traced(batch, *asked)
        self._programs[*asked, None if found.any_batch else batch] = found
        return found

    def _traced(self, batch: int, sample: Any, dtype: Any, training: bool) -> Program:
        import torch

        host, x = self.host, torch.from_numpy(np.zeros((batch, *sample), dtype))
        with LOCK, drawn_from(0):
            names = [*host.names, *host.statistics]
            return traced(host.of(x.dtype, training), (x,), names, grows=True)

    # -- the loss ----------------------------------------------------------------------------------

    def samples(self, outputs: Any, y: Any) -> Any:
        """The loss of each sample by itself."""
        program = self._loss_program(outputs.shape[1:], outputs.dtype, y)

        def one(out: Any, target: Any) -> Any:
            return program({}, [out[None], target[None]], _all(out[None]))[0].reshape(())

        return jax.vmap(one)(outputs, y).astype(outputs.dtype)

    def _loss_program(self, width: tuple[int, ...], dtype: Any, y: Any) -> Program:
        import torch

        classes = not jnp.issubdtype(y.dtype, jnp.floating)
        asked = ("loss", width, np.dtype(dtype), classes, y.shape[1:])
        if asked not in self._programs:
            host, out = self.host, torch.from_numpy(np.zeros((1, *width), dtype))
            target = torch.zeros((1, *y.shape[1:]), dtype=torch.int64 if classes else out.dtype)
            with LOCK, drawn_from(0):
                found = traced(_loss_module(host, out.dtype), (out, target), (), grows=False)
            if found.draws:
                raise Unsupported(f"the loss draws random numbers (aten.{found.draws})")
            self._programs[asked] = found
        return self._programs[asked]

    def _mean(self, outputs: Any, y: Any, rows: Rows) -> Any:
        """The loss of a batch; 0 where it has no samples."""
        share = rows.real.astype(outputs.dtype)
        weights = class_weights(self.host.loss)
        if weights is not None:  # PyTorch divides by the sum of these
            share = share * jnp.asarray(weights, outputs.dtype)[y]
        total = jnp.sum(share)
        return jnp.sum(share * self.samples(outputs, y)) / jnp.where(total > 0, total, 1)

    def _loss(self) -> Callable[..., Any]:
        def training(leaves: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
            x, rows = _real(x, weight)
            outputs = self._forward(leaves, x, rows, training=True, seed=seed)[0]
            return self._mean(outputs, y, rows)

        # As by the callback: where a loss is differentiated the module is in training mode; where
        # only its value is asked for, in eval mode, unless it has no statistics to predict by.
        @jax.custom_vjp
        def loss(leaves: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
            x, rows = _real(x, weight)
            by_batch = bool(self.host.statistics)
            outputs = self._forward(leaves, x, rows, training=by_batch, seed=0)[0]
            return self._mean(outputs, y, rows)

        def backward(slopes: Any, along: Any) -> Any:
            return [along * g for g in slopes], None, None, None, None

        loss.defvjp(jax.value_and_grad(training), backward)
        return cast(Callable[..., Any], loss)


def class_weights(loss: Any) -> Any:
    """By which samples of a class count in the mean of PyTorch's losses of classes; None: alike."""
    import torch

    if not isinstance(loss, torch.nn.CrossEntropyLoss | torch.nn.NLLLoss):
        return None
    if loss.weight is None or loss.reduction != "mean":
        return None
    return loss.weight.numpy()


def _loss_module(host: Host, dtype: torch.dtype) -> torch.nn.Module:
    """The loss as a module, so that its constants are found."""
    import torch

    class Loss(torch.nn.Module):  # type: ignore[misc]  # where PyTorch is not installed
        def __init__(self) -> None:
            super().__init__()
            self.own = host.loss_of(dtype) if host.loss is not None else None

        def forward(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return host.losses(outputs, y, self.own)

    return Loss()


def _all(x: Any) -> Rows:
    return Rows(jnp.ones(len(x), jnp.bool_))


def _real(x: Any, weight: Any) -> tuple[Any, Rows]:
    """A batch and which of its rows count; padding becomes copies of the first, which does."""
    real = weight > 0
    return jnp.where(real.reshape(-1, *(1,) * (x.ndim - 1)), x, x[:1]), Rows(real)
