"""How often and for how long XLA compiled, so that compile time can be reported apart, budgets of
time need not count it, and tests can count programs.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import jax

_MAKING = "/jax/core/compile/"
_EVENT = f"{_MAKING}backend_compile_duration"
_lock = threading.Lock()
_total = {"count": 0, "seconds": 0.0, "long ago": 0.0}
_taken: list[tuple[float, float]] = []
"""When programs were made, from tracing to machine code: stretches of time, none within another."""
_listening = False


def _listen(event: str, duration_secs: float, **_: object) -> None:
    if event == _EVENT:
        with _lock:
            _total["count"] += 1
            _total["seconds"] += duration_secs
    if event.startswith(_MAKING):
        now = time.monotonic()
        begun = now - duration_secs
        with _lock:  # programs are traced within others, and threads compile at the same time
            while _taken and _taken[-1][1] > begun:
                begun = min(begun, _taken.pop()[0])
            _taken.append((begun, now))
            if len(_taken) > 64:
                first, last = _taken.pop(0)
                _total["long ago"] += last - first


def _begin_to_listen() -> None:
    global _listening
    if not _listening:
        jax.monitoring.register_event_duration_secs_listener(_listen)
        _listening = True


def working_time() -> float:
    """A clock in seconds, like `time.monotonic`, that leaves out what was spent making programs."""
    _begin_to_listen()
    with _lock:
        made = _total["long ago"] + sum(end - begin for begin, end in _taken)
        return time.monotonic() - made


class Compilations:
    """Counts the programs compiled inside a `with` block.

    >>> import jax.numpy as jnp
    >>> with Compilations() as c:
    ...     _ = jax.jit(lambda x: x * 3 + 1)(jnp.arange(7))
    >>> c.count >= 1
    True
    """

    count = 0
    seconds = 0.0

    def __enter__(self) -> Compilations:
        _begin_to_listen()
        self._before = dict(_total)
        return self

    def so_far(self) -> float:
        return _total["seconds"] - self._before["seconds"]

    def __exit__(self, *_: object) -> None:
        self.count = int(_total["count"] - self._before["count"])
        self.seconds = _total["seconds"] - self._before["seconds"]


def use_cache(folder: Path) -> None:
    """Keep compiled programs on disk, so that the next process need not compile them again."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
