"""Several processes that do one run together, on one machine or on several: JAX's own distributed
runtime joins them, and every process runs the same program.

All of them must decide alike, or they would wait for each other for ever: what depends on a clock
or on a signal is decided by the first, which also writes the run's folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

from coterie.core.errors import CoterieError, InvalidInput

START = 120
"""Seconds to wait for all processes in the beginning."""
SILENCE = 20
"""Seconds after which a process that says nothing is given up."""


class Lost(CoterieError):
    """Another process of the crew is gone."""


class Place(NamedTuple):
    """Which process of how many this is, and where the first one listens."""

    processes: int
    process: int
    coordinator: str

    def check(self) -> Place:
        if self.processes < 1:
            raise InvalidInput(f"--processes is {self.processes}, but must be at least 1.")
        if not 0 <= self.process < self.processes:
            raise InvalidInput(
                f"--process is {self.process}, but must be from 0 to {self.processes - 1}."
            )
        if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:/]+):\d{1,5}", self.coordinator):
            raise InvalidInput(
                f"--coordinator is {self.coordinator!r}, but must be host:port, where process 0"
                " listens."
            )
        return self


_joined = Place(1, 0, "")


def port_for_all(port: int = 0) -> socket.socket:
    """A socket that holds a port of loopback (nothing: one that is free) as long as it is open.
    Only processes of this user that ask for a shared port get it too: JAX's coordinator does.
    """
    held = socket.socket()
    try:
        if hasattr(socket, "SO_REUSEPORT"):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    return held


def _listening(place: Place) -> str | None:
    """Where the first process listens: nothing is every address. Coordinators of one machine are
    not to be reached from another. JAX ends the process where it finds its port taken.
    """
    host, port = place.coordinator.rsplit(":", 1)
    if host not in ("127.0.0.1", "localhost"):
        return None
    if place.process == 0:
        try:
            port_for_all(int(port)).close()
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"--coordinator is {place.coordinator!r}, but process 0 cannot listen there:"
                f" {error}."
            ) from None
    return f"127.0.0.1:{port}"


def join(place: Place) -> None:
    """Become one of several processes; before JAX has started."""
    global _joined
    place.check()
    if place.processes == 1:
        return
    listening = _listening(place)
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # signals are our own concern
    try:
        jax.distributed.initialize(
            place.coordinator,
            place.processes,
            place.process,
            coordinator_bind_address=listening,
            initialization_timeout=START,
            heartbeat_timeout_seconds=SILENCE,
        )
    except RuntimeError as error:
        raise InvalidInput(
            f"process {place.process} of {place.processes} could not join the others at"
            f" {place.coordinator}: {str(error).splitlines()[0]}."
        ) from None
    _joined = place


def count() -> int:
    """How many processes there are."""
    return _joined.processes


def index() -> int:
    """Which of them this is."""
    return _joined.process


def leads() -> bool:
    """Whether this process is the first, or the only one."""
    return index() == 0


def agreed(number: int) -> int:
    """The number of the first process."""
    if count() == 1:
        return number
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(number))


def gathered(array: Any) -> Any:
    """Every process's array, stacked."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(array)


def is_lost(error: BaseException) -> bool:
    """Whether an error of JAX's says that another process is gone."""
    if type(error).__name__ not in ("XlaRuntimeError", "JaxRuntimeError"):
        return False
    words = ("Gloo", "gloo", "Connection", "coordination", "heartbeat", "peer", "UNAVAILABLE")
    return any(word in str(error) for word in words)


@contextlib.contextmanager
def watching(remedy: str) -> Iterator[None]:
    """Turns what JAX says when another process is gone into one sentence."""
    try:
        yield
    except Exception as error:
        if count() == 1 or not is_lost(error):
            raise
        raise Lost(f"another of the {count()} processes of this run is gone; {remedy}") from None


def cores_of(process: int, processes: int) -> list[int]:
    """The cores of one of several processes on this machine: its share, or all where there are
    fewer cores than processes.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    there = sorted(os.sched_getaffinity(0))
    if len(there) < processes:
        return there
    return there[process * len(there) // processes : (process + 1) * len(there) // processes]
