"""A process that does runs as it is told on its standard input, a line of JSON each; see `grid`.

It is called with the cores to use and the files to import (`--import`).

When its input closes, it stops: at once if it has nothing to do, after a checkpoint if it is at
work. So it does not outlive a command that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import tomllib
import warnings
from pathlib import Path
from typing import Any


def end_kindly() -> None:
    """SIGTERM to this process, from any thread; `os.kill` would end it at once on Windows."""
    if os.name == "nt":
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    cores = [int(core) for core in sys.argv[1].split(",") if core]
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(
            0, cores
        )  # before JAX starts its threads, of which there is one per core
    # What libraries print goes to standard error: standard output is for our lines alone.
    lines = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(**event: Any) -> None:
        # Unbuffered, so that nothing is left to be written at the end. Without a reader the command
        # was killed: `listen` will see to that.
        with contextlib.suppress(BrokenPipeError):
            os.write(lines, (json.dumps(event) + "\n").encode())

    asked: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    busy = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(json.loads(line))
        asked.put(None)
        if busy.is_set():
            end_kindly()

    threading.Thread(target=listen, daemon=True).start()

    from coterie.core.program_cache import use_users_cache

    use_users_cache()

    from coterie.core import plugins
    from coterie.core.errors import CoterieError, Notice
    from coterie.engine.simulate import Simulator, Snapshot
    from coterie.runs import tracking
    from coterie.runs.experiment import Experiment
    from coterie.runs.grid import Planned, describe
    from coterie.runs.run import Interrupted

    warnings.simplefilter("ignore", Notice)  # said by the command, which read the data first
    # A file that fails here did well in the command; then the first run says what it lacks.
    with contextlib.suppress(CoterieError):
        plugins.load([Path(file) for file in sys.argv[2:]], lambda sentence: None)

    note = ""

    def progress(simulator: Simulator, snapshot: Snapshot | None) -> None:
        nonlocal note
        note = describe(simulator, snapshot) if snapshot is not None else note
        tell(rounds=simulator.t, total=simulator.training.rounds, note=note)

    while (job := asked.get()) is not None:
        note = ""
        busy.set()
        try:
            if "tune" in job:
                from coterie.runs.tuning.folder import tune_in_folder

                tune_in_folder(
                    job, lambda done, all_, s: tell(rounds=int(done), total=int(all_), note=s)
                )
                tell(ended=True)
                continue
            tracking.use(job.get("track", ()))
            single = Experiment.from_config(tomllib.loads(job["config"]))
            Planned("", "", single, Path(job["folder"])).run(
                progress, lambda sentence: tell(say=sentence)
            )
            tell(ended=True)
        except Interrupted:
            return
        except CoterieError as error:
            tell(error=type(error).__name__, text=str(error))
            return
        finally:
            busy.clear()


if __name__ == "__main__":
    main()
