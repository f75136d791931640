"""A module computed by PyTorch: every loss, gradient and output leaves the compiled program by a
callback, one client after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from coterie.models.base import Fitted
from coterie.models.torch.callback import call_back
from coterie.models.torch.host import Host


class ByCallback:
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
        leaves = host.leaves(fitted.parameters)
        return call_back(host.on_outputs, shape, leaves, x, statistics)

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
