"""Processes that end with the one that started them.

Who starts commands of coterie as children, and would leave them behind when it is killed, says so
in their environment: COTERIE_PARENT is its process id. A child whose parent is another one now has
been left behind: it ends as with SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
import time

VARIABLE = "COTERIE_PARENT"
LOOK, PATIENCE = 1.0, 20.0
"""Seconds between looks; and until a process that does not heed SIGTERM is killed."""


def ends_with_parent() -> None:
    """Watch the parent, if this process is told to; its own children are not told."""
    told = os.environ.pop(VARIABLE, "")
    if told.isdecimal():
        threading.Thread(target=_watch, args=(int(told),), daemon=True, name="parent").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


def child_of_this() -> dict[str, str]:
    """The environment of a child that is to end with this process."""
    return {**os.environ, VARIABLE: str(os.getpid())}
