"""A plan at a hub that is up, to its end; and all that the command line asks of Flower: `up`,
`register`, `run`, `join`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import write_text
from coterie.deploy.flower.conductor import GaveUp
from coterie.deploy.flower.join import join
from coterie.deploy.flower.link import SuperLinkControl, read_hub, unreachable
from coterie.deploy.flower.processes import Failed, Say
from coterie.deploy.flower.up import register, up
from coterie.deploy.plan import Plan

__all__ = ["Failed", "GaveUp", "join", "register", "run", "up"]


STOPPED = ("failed", "the run was stopped; it goes on when started again.")


class Run:
    """One plan at a hub that is up, to its end."""

    def __init__(
        self, plan: Path, folder: Path, say: Say, show: Callable[[dict[str, Any]], None]
    ) -> None:
        self.plan, self.folder, self.say, self.show = (
            Plan.from_file(plan),
            folder.absolute(),
            say,
            show,
        )
        if self.plan.peers:
            raise InvalidInput(f"{self.plan.method.name} has no hub; run it with `coterie peer`.")
        if self.plan.name in ("app", "plans", "flower", "locks"):
            raise InvalidInput(
                f"name is {self.plan.name!r}, which is the name of something else in a hub's"
                " folder; choose another."
            )
        self._link, self._facts = SuperLinkControl.of(self.folder), read_hub(self.folder)
        self.file = self.folder / f"{self.plan.name}.progress.json"
        self.log = self.folder / f"{self.plan.name}.log"
        self.read = self.log.stat().st_size if self.log.is_file() else 0

    @property
    def link(self) -> SuperLinkControl:
        """To the SuperLink that is up now: a hub that was started again listens elsewhere, under
        another certificate.
        """
        with contextlib.suppress(CoterieError):
            facts = read_hub(self.folder)
            if facts != self._facts:
                self._link.close()
                self._link, self._facts = (
                    SuperLinkControl(facts["address"], Path(facts["ca"])),
                    facts,
                )
        return self._link

    def go(self, tries: int = 5, wait: float = 120.0) -> None:
        write_text(self.folder / "plans" / f"{self.plan.name}.toml", self.plan.to_toml())
        left, best = tries, -1
        run = self._attached()
        while True:
            if run is None:
                run = self._start(wait)
            outcome, sentence = self._watch(run, wait)
            if outcome == "finished":
                return
            if outcome == "failed":
                raise Failed(f"{self.plan.name}: {sentence}")
            now = int(self.progress().get("round", -1))
            left, best = (tries, now) if now > best else (left - 1, best)
            if left == 0:
                raise Failed(
                    f"{self.plan.name}: the run breaks again and again ({sentence}); what the last"
                    " round left is safe."
                )
            self.say(
                f"the hub's process ended ({sentence}); starting it again from its last checkpoint."
            )
            run = None
            time.sleep(1.0)

    def progress(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self.file.read_text())
            return found
        return {}

    def _attached(self) -> int | None:
        """The run that is under way, if one is."""
        found = self.progress()
        if (
            found.get("state") in ("starting", "running")
            and _alive(found.get("pid", 0))
            and found.get("run")
        ):
            self.say("this plan is under way already; watching it.")
            return int(found["run"])
        return None

    def _start(self, wait: float) -> int:
        end = time.monotonic() + wait
        while True:
            try:
                self.file.unlink(missing_ok=True)
                return self.link.start(self.folder / "app", plan=self.plan.name)
            except unreachable() as error:
                if time.monotonic() > end:
                    raise Failed(
                        f"the SuperLink does not answer ({type(error).__name__}): is `coterie hub"
                        f" up --folder {self.folder}` running?"
                    ) from None
                time.sleep(1.0)

    def _watch(self, run: int, wait: float) -> tuple[str, str]:
        """("finished", "failed" with the hub's own sentence, or "broken"; sentence)."""
        asked, answered = time.monotonic(), time.monotonic()
        dead_since = 0.0
        try:
            while True:
                time.sleep(0.5)
                now = self.progress()
                self._tell()
                state = now.get("state", "")
                if state in ("finished", "failed", "broken"):
                    return state, now.get("sentence", "")
                if now:
                    self.show(now)
                    if not _alive(now["pid"]):
                        dead_since = dead_since or time.monotonic()
                        if time.monotonic() - dead_since > 2.0 and self.progress().get("state") in (
                            "starting",
                            "running",
                        ):
                            return self._ended(run)
                        continue
                if time.monotonic() - asked > 3.0:
                    asked = time.monotonic()
                    try:
                        status, sub, details = self.link.status(run)
                        answered = time.monotonic()
                        if status == "finished" and self.progress().get("state") not in (
                            "finished",
                            "failed",
                        ):
                            if sub == "stopped":
                                return STOPPED
                            return "broken", details.splitlines()[0][:200] if details else sub
                    except unreachable():
                        if time.monotonic() - answered > wait and not now:
                            return (
                                "failed",
                                (
                                    "the SuperLink does not answer any more: is `coterie hub up`"
                                    " running?"
                                ),
                            )
        except KeyboardInterrupt:
            with contextlib.suppress(*unreachable()):
                self.link.stop(run)
            raise

    def _ended(self, run: int) -> tuple[str, str]:
        """What became of a run whose process is gone."""
        with contextlib.suppress(*unreachable()):
            status, sub, _ = self.link.status(run)
            if (status, sub) == ("finished", "stopped"):
                return STOPPED
            self.link.stop(run)
        return "broken", "it was killed"

    def _tell(self) -> None:
        """New lines of the run's log."""
        with contextlib.suppress(OSError), self.log.open(encoding="utf-8") as f:
            f.seek(self.read)
            for line in f:
                if not line.endswith("\n"):
                    break
                self.read += len(line.encode())
                self.say(line[20:].rstrip("\n"))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def run(
    plan: Path,
    folder: Path,
    *,
    say: Say = print,
    show: Callable[[dict[str, Any]], None] = lambda now: None,
) -> Path:
    """Run a plan at a hub that is up.

    Gives the folder of its results; raises Failed. To be repeated after any failure.
    """
    task = Run(plan, folder, say, show)
    task.go()
    return task.folder / task.plan.name
