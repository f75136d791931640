"""What every part that computes with PyTorch needs: the call out of a compiled program, and the one
lock around it.

Inside a callback nothing of JAX is called: a program that waits for its callback, which waits for
the program's threads, would hang. One lock is around all of it, because modules and PyTorch's
generator are shared by the threads that XLA calls back from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from coterie.core.errors import InvalidInput

LOCK = threading.RLock()


def need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            "PyTorch is not installed, but this needs it: pip install 'coterie[torch]'."
        ) from error


def reason(error: BaseException) -> str:
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
        for buffer, value in zip(jax.tree.leaves(out), jax.tree.leaves(found), strict=True):
            np.copyto(np.asarray(buffer), value, casting="no")

    return buffer_callback(on_buffers, shapes, vmap_method="sequential")(*arguments)
