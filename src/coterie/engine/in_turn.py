"""Programs over several devices take turns, whichever threads call them.

The devices of such a program wait for each other where they gather what each of them has. Two
programs that two threads have started at once can each hold the thread that the other waits for;
XLA on a CPU then ends the process after 40 s. So a thread begins such a program only when those
that other threads began are over. A thread's own programs are not waited for: they begin in the
same order on all devices.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax


class _Turn:
    """Who has the devices: a thread, and something that is there when its last program is over."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = 0
        self.last: jax.Array | None = None

    def take(self) -> None:
        """Wait until what other threads began is over; with the lock."""
        if self.last is not None and self.thread != threading.get_ident():
            if not self.last.is_deleted():  # it is where a later program took its place in memory
                self.last.block_until_ready()
            self.last = None

    def begun(self, found: Any) -> None:
        """A program of this thread was begun; with the lock."""
        leaves = [leaf for leaf in jax.tree.leaves(found) if isinstance(leaf, jax.Array)]
        self.thread = threading.get_ident()
        self.last = min(leaves, key=lambda leaf: leaf.size, default=None)


_TURN = _Turn()
_HERE = threading.local()


@contextlib.contextmanager
def compiling_first() -> Iterator[None]:
    """Programs that this thread calls are compiled before it waits for its turn, so that others go
    on meanwhile.
    """
    _HERE.compiles = True
    try:
        yield
    finally:
        _HERE.compiles = False


class InTurn:
    """A compiled function whose first argument, or `spec`, says over which mesh it runs."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __call__(self, *given: Any, **named: Any) -> Any:
        told = named["spec"] if "spec" in named else given[0]
        if getattr(told, "mesh", told) is None:
            return self.program(*given, **named)
        if getattr(_HERE, "compiles", False):
            self.program.lower(*given, **named).compile()
        with _TURN.lock:
            _TURN.take()
            found = self.program(*given, **named)
            _TURN.begun(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


def in_turn(function: Callable[..., Any], **options: Any) -> InTurn:
    """`jax.jit`, for programs over a mesh."""
    return InTurn(jax.jit(function, **options))
