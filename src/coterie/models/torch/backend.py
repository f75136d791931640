"""Who computes a module: JAX where it can, PyTorch by callbacks where it cannot.

That JAX can is not taken on trust. Before it is used, a few samples go through both, and outputs,
losses, gradients and statistics must be alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, notice
from coterie.models.base import Fitted
from coterie.models.torch.by_callback import ByCallback
from coterie.models.torch.by_jax import ByJax, class_weights
from coterie.models.torch.host import Host
from coterie.models.torch.operators import Unsupported

Choice = Literal["auto", "jax", "callback"]
CHOICES: tuple[str, ...] = get_args(Choice)

ROWS, REAL = 5, 4
"""Samples that both compute, and those of them that are not padding."""


class Backend:
    """What a model calls; each function is done by one of the two sides.

    `why_*` say in words why JAX does not do it: nothing, if it does.
    """

    def __init__(self, host: Host, choice: str) -> None:
        if choice not in CHOICES:
            raise InvalidInput(
                f"the backend is {choice!r}, but must be 'auto', 'jax' or 'callback'."
            )
        self.host, self.choice = host, choice
        self.by_jax, self.by_callback = ByJax(host), ByCallback(host)
        self._found: dict[Any, str] = {}

    # -- for the model -----------------------------------------------------------------------------

    def outputs(self, leaves: Any, x: Any) -> Any:
        return self._side(self.why_not_predict(x.shape[1:])).outputs(leaves, x)

    def predict(self, fitted: Fitted, x: Any) -> Any:
        return self._side(self.why_not_predict(x.shape[1:])).predict(fitted, x)

    def train(self, leaves: Any, x: Any, weight: Any) -> Any:
        return self._side(self.why_not_normalise(x.shape[1:])).train(leaves, x, weight)

    def loss(self, leaves: Any, x: Any, y: Any, weight: Any, seed: Any) -> Any:
        classes = not np.issubdtype(y.dtype, np.floating)
        side = self._side(self.why_not_learn(x.shape[1:], classes))
        return side.loss(leaves, x, y, weight, seed)

    def samples(self, outputs: Any, y: Any) -> Any:
        classes = not np.issubdtype(y.dtype, np.floating)
        return self._side(self.why_no_loss(outputs.shape[1], classes)).samples(outputs, y)

    def _side(self, why: str) -> ByJax | ByCallback:
        if why and self.choice == "jax":
            raise InvalidInput(
                f"the module {self.host.label} cannot be computed by JAX: {why}; backend='callback'"
                " computes it with PyTorch."
            )
        return self.by_callback if why else self.by_jax

    def why(self, sample: tuple[int, ...], outputs: int, task: str) -> str:
        """Why PyTorch computes some of it."""
        classes = task == "classification"
        return (
            self.why_not_predict(sample)
            or (self.why_not_normalise(sample) if self.host.statistics else "")
            or self.why_no_loss(outputs, classes)
            or self.why_not_learn(sample, classes)
        )

    def check(self, sample: tuple[int, ...], outputs: int, task: str) -> None:
        """Before a run: say that it will be slow, or refuse it where that was asked for."""
        if self.choice == "callback":
            return
        why = self.why(sample, outputs, task)
        self._side(why)
        if why:
            notice(
                f"the module {self.host.label} is trained by PyTorch, one client after the other,"
                f" and not by JAX, all at once: {why}."
            )

    # -- comparisons -------------------------------------------------------------------------------

    def why_not_predict(self, sample: tuple[int, ...]) -> str:
        def compare(x: NDArray[Any]) -> str:
            ours = jax.jit(self.by_jax.outputs)(self._leaves(), x)
            return _unlike("outputs", ours, self.host.on_outputs(self._leaves(), x))

        return self._why(("predict", sample), sample, compare)

    def why_not_normalise(self, sample: tuple[int, ...]) -> str:
        def compare(x: NDArray[Any]) -> str:
            drawn = self._drawn(x)
            if drawn:
                return drawn
            given = (self._leaves(), x, _weight())
            out, found = jax.jit(self.by_jax.train)(*given)
            theirs, statistics = self.host.on_statistics(*given)
            if self.by_jax.program(x.shape, x.dtype, True).draws:
                return ""
            return _unlike("outputs in training mode", out, theirs) or _unlike(
                "statistics of batch normalisation", list(found.values()), statistics
            )

        return self._why(("normalise", sample), sample, compare)

    def why_no_loss(self, outputs: int, classes: bool) -> str:
        def compare(x: NDArray[Any]) -> str:
            if self.host.loss is None:
                return ""
            y = self._targets(outputs, classes)
            ours = jax.jit(self.by_jax.samples)(x, y)
            return _unlike("losses", ours, self.host.on_samples(x, y))

        return self._why(("loss", outputs, classes), (outputs,), compare)

    def why_not_learn(self, sample: tuple[int, ...], classes: bool) -> str:
        def compare(x: NDArray[Any]) -> str:
            drawn, loss = self._drawn(x), self.host.loss
            if drawn:
                return drawn
            if class_weights(loss) is not None and (class_weights(loss) <= 0).any():
                return "some classes have no weight in the loss"
            ignored = getattr(loss, "ignore_index", -1)
            if ignored >= 0:
                return f"the loss ignores class {ignored}"
            leaves, (_, width) = self._leaves(), self.host.shape_of_outputs(x.shape, x.dtype)
            y = self._targets(width, classes)
            given = (x, y, _weight(), np.uint32(0))
            if self.by_jax.program(x.shape, x.dtype, True).draws:
                jax.eval_shape(jax.grad(self.by_jax.loss), leaves, *given)
                return ""
            value, slopes = jax.jit(jax.value_and_grad(self.by_jax.loss))(leaves, *given)
            theirs, along = self.host.on_gradient(leaves, *given)
            same = "the loss of a batch, which must be the mean over its samples,"
            return _unlike(same, value, theirs) or _unlike("gradients", slopes, along)

        return self._why(("learn", sample, classes), sample, compare)

    def _why(self, asked: Any, sample: tuple[int, ...], compare: Callable[..., str]) -> str:
        if self.choice == "callback":
            return "backend='callback' was asked for"
        if asked not in self._found:
            # Perhaps in the middle of a program that JAX is tracing: this is no part of it.
            with jax.ensure_compile_time_eval():
                try:
                    self._found[asked] = compare(self._samples(sample, asked[0] != "loss"))
                except Unsupported as error:
                    self._found[asked] = str(error)
        return self._found[asked]

    def _drawn(self, x: NDArray[Any]) -> str:
        """Random numbers of PyTorch are its own: whoever wants JAX's in their place must say so."""
        name = self.by_jax.program(x.shape, x.dtype, True).draws
        if not name or self.choice == "jax":
            return ""
        return (
            f"it draws random numbers in training (aten.{name}), which would be others;"
            " backend='jax' takes those"
        )

    def _leaves(self) -> list[NDArray[Any]]:
        return [v.astype(np.float32) for v in self.host.values().values()]

    def _samples(self, sample: tuple[int, ...], of_module: bool) -> NDArray[Any]:
        """Standard normal ones, or zeros and ones where the module cannot take these (as where it
        looks them up in a table).
        """
        rng = np.random.default_rng(0)
        x = rng.standard_normal((ROWS, *sample)).astype(np.float32)
        if of_module:
            try:
                self.host.on_outputs(self._leaves(), x)
            except Exception:
                return rng.integers(0, 2, x.shape).astype(np.float32)
        return x

    def _targets(self, width: int, classes: bool) -> NDArray[Any]:
        if classes:
            return (np.arange(ROWS) % width).astype(np.int32)
        return np.random.default_rng(1).standard_normal((ROWS, width)).astype(np.float32)


def _weight() -> NDArray[Any]:
    return (np.arange(ROWS) < REAL).astype(np.float32)


def _unlike(what: str, ours: Any, theirs: Any) -> str:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        near = 1e-5 + 1e-3 * np.max(np.abs(b[np.isfinite(b)]), initial=0)
        if a.shape != b.shape or not np.allclose(a, b, rtol=0, atol=near, equal_nan=True):
            return f"{what} came out otherwise than PyTorch has them"
    return ""
