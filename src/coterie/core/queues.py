"""Waiting for what others put into a queue."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import TypeVar

LOOK = 0.2
"""Seconds between two looks at whether there is still something to wait for."""
T = TypeVar("T")


def heard(source: queue.SimpleQueue[T], going: Callable[[], bool]) -> Iterator[T]:
    """What comes out of a queue, as long as `going` says so.

    >>> events = queue.SimpleQueue()
    >>> for event in "abc":
    ...     events.put(event)
    >>> list(heard(events, lambda: not events.empty()))
    ['a', 'b', 'c']
    """
    while going():
        try:
            event = source.get(timeout=LOOK)
        except queue.Empty:
            continue
        yield event
