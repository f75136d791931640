"""Ctrl-C and SIGTERM as wishes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

from coterie.core import crew


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask to stop at the next occasion (between two blocks of rounds); a second
    one stops at once.
    """
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    previous = {}
    with contextlib.suppress(ValueError):  # not in the main thread: nobody to press Ctrl-C
        previous = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(crew.agreed(asked))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
