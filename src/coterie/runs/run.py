"""A run is a folder: it can be killed, resumed bit for bit, reported on, exported from and run
again from its own config.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from coterie.core.compilation import Compilations
from coterie.core.errors import CoterieError, Diverged, InvalidInput
from coterie.core.files import locked, make_folder, write_json, write_text, writing
from coterie.core.vector import Vector
from coterie.engine.simulate import Progress, Simulator, drive
from coterie.network.model import Dropping
from coterie.runs.checkpoint import Checkpoints
from coterie.runs.experiment import Experiment
from coterie.runs.records import ROWS, Records, write_rows

SECONDS_BETWEEN_CHECKPOINTS = 10.0
Say = Callable[[str], None]


class Interrupted(CoterieError):
    """Ctrl-C: the folder holds a checkpoint and can be resumed."""

    exit_code = 130


@dataclasses.dataclass
class Finished:
    """A finished run."""

    folder: Path
    simulator: Simulator
    seconds: float
    compile_seconds: float


def environment() -> dict[str, Any]:
    """What the numbers were computed with."""
    import jaxlib.version

    import coterie

    return {
        "coterie": coterie.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "devices": [str(d) for d in jax.devices()],
    }


def _simulator(experiment: Experiment, folder: Path | None) -> Simulator:
    """Loads and checks everything, and writes nothing."""
    (method, channel), federation = experiment.contender, experiment.federation()
    graph = experiment.graph.build(federation) if method.exchange == "graph" else None
    given = (
        method,
        federation,
        experiment.model,
        experiment.training,
        graph,
        folder,
        channel,
        experiment.attack,
    )
    network = experiment.network
    return (
        Dropping.of(network, *given)
        if network is not None and network.changes_training
        else Simulator(*given)
    )


def start(
    experiment: Experiment,
    folder: Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    say: Say = print,
) -> Finished:
    """Run an experiment with one method into a new folder."""
    simulator = _simulator(experiment, folder)  # refuses before anything is written
    if force and (folder / "config.toml").is_file():
        with locked(folder):
            for name in ("checkpoints", "parts"):
                shutil.rmtree(folder / name, ignore_errors=True)
            for name in (
                "status.json",
                "rounds.parquet",
                "clients.parquet",
                "ledger.parquet",
                "timing.parquet",
                ROWS,
            ):
                (folder / name).unlink(missing_ok=True)
    make_folder(folder, force=force)
    with locked(folder):
        write_text(folder / "config.toml", experiment.to_toml())
        write_json(folder / "environment.json", environment())
        if experiment.attack is not None:
            write_json(folder / "liars.json", simulator.members[simulator.liars].tolist())
        return _carry_on(experiment, folder, simulator, restore=False, progress=progress, say=say)


def load(folder: Path, *, say: Say = print) -> tuple[Experiment, Simulator, Checkpoints]:
    """The experiment of a folder and a simulator at its newest sound checkpoint (round 0 if there
    is none).
    """
    config = folder / "config.toml"
    if not config.is_file():
        raise InvalidInput(f"{str(folder)!r} is not the folder of a run: it has no config.toml.")
    _refuse_without_models(folder)
    experiment = Experiment.from_file(config)
    # Only looking: the scratch file of a run that is under way must not be touched.
    looking = (
        experiment.with_(training=experiment.training.replace(store="host"))
        if experiment.training.store == "file"
        else experiment
    )
    simulator = _simulator(looking, None)
    checkpoints = Checkpoints(folder, experiment.fingerprint(), experiment.to_config())
    checkpoints.restore(simulator, say)
    return experiment, simulator, checkpoints


def resume(folder: Path, *, progress: Progress | None = None, say: Say = print) -> Finished:
    """Go on with a run that was killed or interrupted; the end is bit for bit that of an
    undisturbed run.
    """
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} does not exist.")
    if not (folder / "config.toml").is_file():
        raise InvalidInput(f"{str(folder)!r} is not the folder of a run: it has no config.toml.")
    _refuse_without_models(folder)
    experiment = Experiment.from_file(folder / "config.toml")
    with locked(folder):
        simulator = _simulator(experiment, folder)
        if changed := _changed_environment(folder):
            say(
                f"the run began with {changed}: it goes on, but its last bits may differ from an"
                " undisturbed run."
            )
        return _carry_on(experiment, folder, simulator, restore=True, progress=progress, say=say)


def _changed_environment(folder: Path) -> str:
    """What of the environment that bits depend on is not as it was when the run began, in words;
    empty if nothing is.
    """
    try:
        then = json.loads((folder / "environment.json").read_text())
    except (OSError, ValueError):
        return ""
    now = environment()
    return ", ".join(
        f"{key} {then.get(key)} (now {now[key]})"
        for key in ("coterie", "jax", "jaxlib", "processor", "devices")
        if then.get(key) != now[key]
    )


def _status(folder: Path) -> dict[str, Any]:
    try:
        status = json.loads((folder / "status.json").read_text())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def is_finished(folder: Path) -> bool:
    return bool(_status(folder).get("finished"))


def has_ended(folder: Path) -> bool:
    """Finished, or collapsed: running it again would end the same way."""
    status = _status(folder)
    return bool(status.get("finished") or status.get("diverged"))


def drop_models(folder: Path) -> None:
    """Delete the models of a run that has ended, for the room they take; its scores and its bill
    stay. Nothing is done to other runs.
    """
    if has_ended(folder) and (folder / "checkpoints").exists():
        with locked(folder):
            write_json(
                folder / "status.json", _status(folder) | {"models": "dropped"}
            )  # first: whoever looks in between is refused
            shutil.rmtree(folder / "checkpoints")


def _refuse_without_models(folder: Path) -> None:
    if _status(folder).get("models") == "dropped":
        raise InvalidInput(
            f"the models of {str(folder)!r} were deleted when it had ended (--drop-models); run its"
            " config.toml again to have them."
        )


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
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _carry_on(
    experiment: Experiment,
    folder: Path,
    simulator: Simulator,
    *,
    restore: bool,
    progress: Progress | None,
    say: Say,
) -> Finished:
    checkpoints = Checkpoints(folder, experiment.fingerprint(), experiment.to_config())
    found = restore and checkpoints.restore(simulator, say)
    if restore and not found:
        say("there is no sound checkpoint; the run begins again.")
    records = Records(folder, simulator)
    # The evaluation before the first round is made again when no round was saved.
    records.drop_after(simulator.t if found and simulator.t else -1)
    if is_finished(folder) and simulator.t >= experiment.training.rounds:
        return Finished(folder, simulator, 0.0, 0.0)
    for condition in simulator.conditions():
        if not condition.holds:
            say(f"{simulator.method.title} may diverge: {condition}.")
    begun = last = time.perf_counter()
    every = experiment.training.checkpoint_every
    saved = simulator.t

    def save() -> None:
        nonlocal last, saved
        records.write(simulator.t)
        checkpoints.write(simulator)
        last, saved = time.perf_counter(), simulator.t

    with Compilations() as compilations, stop_requests() as stop_asked:

        def watch(sim: Simulator, snapshot: Any) -> None:
            if progress:
                progress(sim, snapshot)
            if snapshot is None and stop_asked() and sim.t % sim.training.eval_every:
                save()
                _interrupted(folder, sim)

        try:
            for snapshot in drive(simulator, watch):
                records.add(snapshot, time.perf_counter() - begun, compilations.so_far())
                due = (
                    simulator.t - saved >= every
                    if every
                    else time.perf_counter() - last > SECONDS_BETWEEN_CHECKPOINTS
                )
                if due or stop_asked() or simulator.t >= experiment.training.rounds:
                    save()
                if stop_asked() and simulator.t < experiment.training.rounds:
                    _interrupted(folder, simulator)
        except Diverged as error:
            records.write(simulator.t)
            records.join()
            write_json(
                folder / "status.json",
                {"finished": False, "diverged": str(error), "round": error.round},
            )
            raise
    records.join()
    write_rows(folder, simulator)
    write_json(folder / "status.json", {"finished": True, "rounds": simulator.t})
    shutil.rmtree(folder / "parts", ignore_errors=True)
    (folder / "store.scratch").unlink(missing_ok=True)
    return Finished(folder, simulator, time.perf_counter() - begun, compilations.seconds)


def _interrupted(folder: Path, simulator: Simulator) -> None:
    raise Interrupted(
        f"stopped after round {simulator.t} of {simulator.training.rounds}; go on with: coterie"
        f" resume {folder}"
    )


def tensors(model: Vector) -> dict[str, np.ndarray]:
    """A model as named arrays: names are the paths in its pytree, joined by dots."""
    paths, _ = jax.tree_util.tree_flatten_with_path(model.tree)
    named = {
        ".".join(_plain(step) for step in path) or "parameters": np.ascontiguousarray(leaf)
        for path, leaf in paths
    }
    return named


def write_models(models: dict[str, Vector], facts: dict[str, str], folder: Path) -> list[Path]:
    """A client's models as safetensors files, one per view."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"{str(folder)!r} cannot be written: {error.strerror or error}."
        ) from None
    paths = []
    for view, model in models.items():
        path = folder / f"{view}.safetensors"
        with writing(path) as temporary:
            save_file(tensors(model), temporary, metadata={**facts, "view": view})
        paths.append(path)
    return paths


def _plain(step: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def export(
    folder: Path, clients: list[int] | None, out: Path, *, view: str | None = None, say: Say = print
) -> list[Path]:
    """Write clients' models as safetensors files (`clients` None: all); returns the paths."""
    experiment, simulator, _ = load(folder, say=say)
    if simulator.t == 0:
        say("this run has no checkpoint yet: these are the initial models.")
    views = simulator.method.model_views
    chosen = view or views[0]
    if chosen not in views:
        raise InvalidInput(
            f"view is {chosen!r}, but {experiment.method.name} has {', '.join(map(repr, views))}."
        )
    everyone = simulator.members.tolist()
    for k in clients or []:
        simulator.place(k)
    paths = []
    single = clients is not None and len(clients) == 1 and out.suffix == ".safetensors"
    try:
        (out.parent if single else out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{str(out)!r} cannot be written: {error.strerror or error}.") from None
    for k in everyone if clients is None else clients:
        path = out if single else out / f"client-{k:05d}.safetensors"
        facts = {
            "client": str(k),
            "view": chosen,
            "method": experiment.method.name,
            "round": str(simulator.t),
            "model": experiment.model.name,
        }
        with writing(path) as temporary:
            save_file(tensors(simulator.models(k)[chosen]), temporary, metadata=facts)
        paths.append(path)
    return paths
