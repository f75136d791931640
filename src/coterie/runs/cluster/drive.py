"""A grid on the workers of a Dask cluster: each run, or the tuning of each method, is a task, and
Dask finds it a worker.

A run whose worker is gone is a task that Dask gives to another worker, which goes on from the run's
newest checkpoint. When the command ends, however it does, Dask takes back what it was given, and
the runs that are under way are saved.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie import __version__
from coterie.core import plugins
from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import write_text
from coterie.runs import run as runs
from coterie.runs.cluster import hand
from coterie.runs.cluster.address import Scheduler
from coterie.runs.stopping import stop_requests
from coterie.runs.waiting import Waiting, refuse

if TYPE_CHECKING:
    from coterie.runs.grid import Board, Job

ANSWER = 10.0
"""Seconds that a scheduler has to answer."""
AGAIN = 2
"""How often a run is tried again whose process has died."""


class OnCluster(Waiting):
    """The runs of one command."""

    def __init__(
        self,
        scheduler: Scheduler,
        todo: Sequence[Job],
        total: int,
        board: Board | None,
        say: runs.Say,
        keep_models: bool = True,
    ) -> None:
        super().__init__(len(todo), total, board, say, keep_models)
        self.scheduler, self.todo = scheduler, todo
        self.waiting = set(range(len(todo)))
        self.slots: list[int | None] = []
        """Which run each bar shows."""
        self.futures: list[Any] = []

    def work(self) -> None:
        with _silence(), self._client() as client, self._root() as (root, token):
            facts = self._facts(client, root, token)
            client.subscribe_topic(token, self._heard)
            try:
                with stop_requests() as stop_asked:
                    self._submit(client, facts)
                    self.wait(stop_asked)
            finally:
                self._take_back(client)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        from coterie.runs.cluster.library import Client

        address, security = self.scheduler.address, self.scheduler.security()
        try:
            client = Client(address, security=security, timeout=ANSWER, set_as_default=False)
        except Exception as error:  # of sockets, TLS and Dask
            why = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
            raise InvalidInput(
                f"--cluster is {self.scheduler.given!r}, but no Dask scheduler answers at"
                f" {address}: {why}."
            ) from None
        try:
            yield client
        finally:
            client.close(timeout=ANSWER)

    @contextlib.contextmanager
    def _root(self) -> Iterator[tuple[Path, str]]:
        """A folder that all runs are in, and the name of a file in it that workers look for."""
        parents = [job.folder.resolve().parent for job in self.todo]
        root, token = Path(os.path.commonpath(parents)), f".cluster-{uuid.uuid4().hex}"
        root.mkdir(parents=True, exist_ok=True)
        write_text(root / token, "workers of the cluster look for this file\n")
        try:
            yield root, token
        finally:
            (root / token).unlink(missing_ok=True)

    def _facts(self, client: Any, root: Path, token: str) -> hand.Facts:
        workers = client.scheduler_info()["workers"]
        found = client.run(hand.look, str(root), token, on_error="return")
        for address, seen in found.items():
            if isinstance(seen, Exception):
                raise InvalidInput(
                    f"the worker {address} cannot do runs, since it does not have coterie as it is"
                    f" here: {(str(seen).splitlines() or [type(seen).__name__])[0].rstrip('.')}."
                )
            if not seen["sees"]:
                raise InvalidInput(hand.refused(f"the worker {address}", str(root))["text"])
            if seen["version"] != __version__:
                raise InvalidInput(
                    f"the worker {address} has coterie {seen['version']}, but must have"
                    f" {__version__} as the command."
                )
            if (threads := workers.get(address, {}).get("nthreads", 1)) > 1:
                raise InvalidInput(
                    f"the worker {address} has {threads} threads, but must have 1, since each run"
                    " uses all cores it is given; start it with --nthreads 1."
                )
        if not found:
            self.say(f"{self.scheduler.address} has no workers yet; waiting for them.")
        return {
            "root": str(root),
            "token": token,
            "folder": str(Path.cwd()),
            "data": os.environ.get("COTERIE_DATA"),
            "files": [str(file.path) for file in plugins.imported()],
            "cores": shares(found),
        }

    def _submit(self, client: Any, facts: hand.Facts) -> None:
        self.tell_overall()
        for number, job in enumerate(self.todo):
            order = job.order() | {"folder": str(job.folder.resolve())}
            future = client.submit(
                hand.do,
                order,
                number,
                facts,
                key=f"coterie{facts['token']}-{number}",
                pure=False,
                retries=AGAIN,
                priority=-number,
            )
            self.futures.append(future)
            future.add_done_callback(lambda _, number=number: self.events.put((number, None)))

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        told = event[1]
        self.events.put((int(told["number"]), told))

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def take(self, number: int, event: dict[str, Any] | None) -> None:
        if number not in self.waiting:
            return
        if event is None:
            self.waiting.discard(number)
            self._taken(number)
        elif self.board:
            slot = self._slot(number, "rounds" not in event)
            if "rounds" in event:
                label = self.todo[number].label
                self.board.show(slot, label, event["rounds"], event["total"], event["note"])

    def _slot(self, number: int, fresh: bool) -> int:
        """The bar of a run; a new one if there is none, or if it begins (again)."""
        assert self.board is not None
        known = number in self.slots
        if not known:
            if None not in self.slots:
                self.slots.append(None)
            self.slots[self.slots.index(None)] = number
        slot = self.slots.index(number)
        if fresh or not known:
            self.board.show(slot, self.todo[number].label, None, None, None)
        return slot

    def _taken(self, number: int) -> None:
        job, future = self.todo[number], self.futures[number]
        if future.status != "finished":
            raise CoterieError(f"{self._why(job.label, future)}; nothing is lost: repeat it.")
        found = future.result()
        refuse(found)
        for sentence in found.get("said", ()):
            self.say(sentence)
        job.refuse_other_inputs()
        if self.board and number in self.slots:
            slot = self.slots.index(number)
            self.slots[slot] = None
            self.board.show(slot, "", None, None, None)
        self.end(job)

    def _why(self, label: str, future: Any) -> str:
        if future.status != "error":
            return f"the scheduler {self.scheduler.address} is gone or gave up {label!r}"
        error = future.exception()
        if isinstance(error, hand.Gone):
            return f"the process that ran {label!r} {error}, {AGAIN + 1} times"
        if type(error).__name__ == "KilledWorker":
            return f"too many workers were lost with {label!r}"
        text = (str(error).splitlines() or [""])[0].rstrip(".")
        return f"the worker that had {label!r} failed with {type(error).__name__}: {text}"

    def _take_back(self, client: Any) -> None:
        """Runs that are under way are saved, and their folders are free when this returns."""
        begun = [self.todo[i].folder for i, future in enumerate(self.futures) if not future.done()]
        with contextlib.suppress(Exception):  # of a scheduler that is gone
            client.cancel(self.futures)
        for folder in begun:
            hand.unlocked(folder, hand.PATIENCE)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Dask logs what is said here in sentences, with tracebacks."""
    from coterie.runs.cluster import library  # noqa: F401 - it sets its loggers up

    names = ("distributed", "distributed.client", "tornado")
    levels = {h: h.level for name in names for h in logging.getLogger(name).handlers}
    for handler in levels:
        handler.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for handler, level in levels.items():
            handler.setLevel(level)


def shares(found: dict[str, dict[str, Any]]) -> dict[str, list[int]]:
    """The cores of each worker: those that several workers of a machine may use are dealt out."""
    from coterie.runs.grid import dealt

    alike: dict[Any, list[str]] = {}
    for address, seen in sorted(found.items()):
        alike.setdefault((seen["host"], *seen["cores"]), []).append(address)
    out: dict[str, list[int]] = {}
    for (_, *cores), addresses in alike.items():
        each = dealt(cores, len(addresses)) if cores else [[] for _ in addresses]
        out |= dict(zip(addresses, each, strict=True))
    return out
