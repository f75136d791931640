"""A run is a folder: it can be killed, resumed bit for bit, reported on, exported from and run
again from its own config.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core import crew
from coterie.core.compilation import Compilations
from coterie.core.errors import CoterieError, Diverged, InvalidInput
from coterie.core.files import locked, make_folder, reading_tables, write_json, write_text
from coterie.core.options import as_written
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.outline import Outline
from coterie.engine.simulate import Progress, Simulator, drive
from coterie.runs import inputs, outlines
from coterie.runs.checkpoint import Checkpoints
from coterie.runs.environment import changed_since, environment
from coterie.runs.experiment import Experiment
from coterie.runs.records import ROWS, TABLES, Records, write_rows
from coterie.runs.stopping import stop_requests
from coterie.runs.together import own_folder
from coterie.runs.tracking.base import KEPT, following
from coterie.runs.watching.live import LIVE, Live, metric_told

SECONDS_BETWEEN_CHECKPOINTS = 10.0
SHOWN = 40
"""Runs of a comparison that an error names."""
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


Known = tuple[Outline, Graph | GraphRule | None]
"""The outline of the data, and the graph or what learns it."""


def simulator_of(
    experiment: Experiment, folder: Path | None, known: Known | None = None
) -> Simulator:
    """Loads and checks everything, and writes nothing. With an outline that is `known`, the data
    are not loaded.
    """
    method, channel, _ = experiment.contender
    federation = experiment.federation() if known is None else known[0]
    graph: Graph | GraphRule | None = None
    if method.couples:
        given = experiment.graph_of(experiment.contender)
        graph = given.build(federation) if known is None else known[1]
    network = experiment.network
    return Simulator(
        method,
        federation,
        experiment.model,
        experiment.training,
        graph,
        folder=folder,
        channel=channel,
        attack=experiment.attack,
        absent=None if network is None else network.absent(federation.clients),
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
    experiment.refuse_several()
    with own_folder(folder, resumed=False) as place:
        return _start(experiment, place, folder, force=force, progress=progress, say=say)


def _start(
    experiment: Experiment,
    folder: Path,
    run: Path,
    *,
    force: bool,
    progress: Progress | None,
    say: Say,
) -> Finished:
    simulator = simulator_of(experiment, folder)  # refuses before anything is written
    if force and (folder / "config.toml").is_file():
        discard(folder)
    make_folder(folder, force=force)
    with locked(folder):
        write_text(folder / "config.toml", experiment.to_toml())
        inputs.note(folder, experiment)
        outlines.note(folder, experiment, simulator)
        write_json(folder / "environment.json", environment(simulator))
        if experiment.attack is not None:
            write_json(folder / "malicious.json", simulator.members[simulator.malicious].tolist())
        return _carry_on(
            experiment, folder, simulator, run, restore=False, progress=progress, say=say
        )


def discard(folder: Path) -> None:
    """Delete what a run wrote, but for its folder."""
    with locked(folder):
        for name in ("checkpoints", "parts", "tensorboard", "wandb"):
            shutil.rmtree(folder / name, ignore_errors=True)
        tables = (f"{t}.parquet" for t in TABLES)
        for name in (
            "config.toml",
            inputs.FILE,
            "status.json",
            ROWS,
            *outlines.FILES,
            outlines.LEARNT,
            KEPT,
            LIVE,
            *tables,
        ):
            (folder / name).unlink(missing_ok=True)


def read_experiment(folder: Path) -> Experiment:
    """The experiment of a run's folder; refuses other folders, and runs without their models."""
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} does not exist.")
    if several := sorted(c.parent for c in (folder / "runs").rglob("config.toml")):
        names = ", ".join(map(str, several[:SHOWN]))
        more = f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""
        raise InvalidInput(
            f"the folder {str(folder)!r} holds several runs; name one of them: {names}{more}."
        )
    if not (folder / "config.toml").is_file():
        raise InvalidInput(f"{str(folder)!r} is not the folder of a run: it has no config.toml.")
    if _status(folder).get("models") == "dropped":
        raise InvalidInput(
            f"the models of {str(folder)!r} were deleted when it had ended (--drop-models); run its"
            " config.toml again to have them."
        )
    inputs.refuse_without_imports(folder)
    with as_written():
        return Experiment.from_file(folder / "config.toml")


def load(
    folder: Path, *, say: Say = print, data: bool = True
) -> tuple[Experiment, Simulator, Checkpoints]:
    """The experiment of a folder and a simulator at its newest sound checkpoint (round 0 if there
    is none yet).

    Without `data` the simulator stands on the outline of the training data, where the run kept
    one: it can give models and take in newcomers, but not go on.
    """
    experiment = read_experiment(folder)
    known = None if data else outlines.read(folder, experiment)
    inputs.refuse_changed(folder, experiment, "run its config.toml again", data=known is None)
    # Without the folder: the scratch file of a run that is under way must not be touched.
    simulator = simulator_of(experiment, None, known)
    checkpoints = _checkpoints(folder, experiment)
    rounds = int(_status(folder).get("rounds", experiment.training.rounds))
    if not checkpoints.restore(simulator, say):
        if is_finished(folder) or checkpoints.any:
            raise InvalidInput(
                f"the models of {str(folder)!r} are lost: none of its checkpoints is sound; make"
                f" them again with: coterie resume {folder}"
            )
    elif is_finished(folder) and simulator.t < rounds:
        say(f"the newest sound checkpoint is the one after round {simulator.t} of {rounds}.")
    if simulator.t:
        checkpoints.keeper.finish(simulator, newcomers=False)
    return experiment, simulator, checkpoints


def _checkpoints(folder: Path, experiment: Experiment) -> Checkpoints:
    return Checkpoints(
        folder, experiment.fingerprint(), experiment.to_config(), experiment.training
    )


def resume(folder: Path, *, progress: Progress | None = None, say: Say = print) -> Finished:
    """Go on with a run that was killed or interrupted; the end is bit for bit that of an
    undisturbed run.
    """
    with own_folder(folder, resumed=True) as place:
        return _resume(place, folder, progress=progress, say=say)


def _resume(folder: Path, run: Path, *, progress: Progress | None, say: Say) -> Finished:
    experiment = read_experiment(folder)
    inputs.refuse_changed(folder, experiment, "start a new run")
    with locked(folder):
        simulator = simulator_of(experiment, folder)
        outlines.note(folder, experiment, simulator)  # folders of earlier versions have none
        if changed := changed_since(folder, simulator):
            say(
                f"the run began with {changed}: it goes on, but its last bits may differ from an"
                " undisturbed run."
            )
        return _carry_on(
            experiment, folder, simulator, run, restore=True, progress=progress, say=say
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
            for name in outlines.FILES:
                (folder / name).unlink(missing_ok=True)


def _carry_on(
    experiment: Experiment,
    folder: Path,
    simulator: Simulator,
    run: Path,
    *,
    restore: bool,
    progress: Progress | None,
    say: Say,
) -> Finished:
    """To the end; who is told how far it is: whoever began it, `coterie watch`, and trackers.
    `folder` is what this process writes, `run` the run's own folder, which users know.
    """
    live = Live(folder, simulator)
    try:
        with following(folder) as trackers:
            listeners: list[Progress] = [live, *trackers, *([progress] if progress else [])]

            def tell(sim: Simulator, snapshot: Any) -> None:
                for listen in listeners:
                    listen(sim, snapshot)

            return _carry_out(
                experiment, folder, simulator, run, restore=restore, progress=tell, say=say
            )
    finally:
        live.end()


def _carry_out(
    experiment: Experiment,
    folder: Path,
    simulator: Simulator,
    run: Path,
    *,
    restore: bool,
    progress: Progress,
    say: Say,
) -> Finished:
    checkpoints = _checkpoints(folder, experiment)
    keeper = checkpoints.keeper
    found = restore and checkpoints.restore(simulator, say)
    if restore and not found:
        say("there is no sound checkpoint; the run begins again.")
    records = Records(folder, simulator)
    # The evaluation before the first round is made again when no round was saved.
    records.drop_after(simulator.t if found and simulator.t else -1)
    over = lambda: simulator.t >= experiment.training.rounds or keeper.stopped
    if is_finished(folder) and over():
        keeper.finish(simulator, newcomers=False)
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

    remedy = f"go on with: coterie resume {run}, with as many processes as you like."
    with Compilations() as compilations, stop_requests() as stop_asked, crew.watching(remedy):

        def watch(sim: Simulator, snapshot: Any) -> None:
            progress(sim, snapshot)
            if snapshot is None and sim.t % sim.training.eval_every and stop_asked():
                save()
                _interrupted(run, sim)

        try:
            for snapshot in drive(simulator, watch, keeper):
                records.add(snapshot, time.perf_counter() - begun, compilations.so_far())
                due = (
                    simulator.t - saved >= every
                    if every
                    else time.perf_counter() - last > SECONDS_BETWEEN_CHECKPOINTS
                )
                stop = stop_asked()
                if crew.agreed(due) or stop or over():
                    save()
                if stop and not over():
                    _interrupted(run, simulator)
        except Diverged as error:
            records.write(simulator.t)
            _join(records)
            write_json(
                folder / "status.json",
                {
                    "finished": False,
                    "diverged": str(error),
                    "round": error.round,
                    "metric": metric_told(simulator),
                    **_unsent(simulator),
                },
            )
            raise
    ended = simulator.t
    if (newcomers := keeper.finish(simulator)) is not None:
        records.add(newcomers, time.perf_counter() - begun, compilations.so_far())
        records.write(ended + 1)  # of no checkpoint: made again if the run is killed here
    _join(records)
    write_rows(folder, simulator)
    outlines.note_models(folder, simulator)
    outlines.note_learnt(folder, simulator)
    if simulator.unsent:
        say(
            f"{simulator.unsent} messages of malicious clients held NaN or infinity and counted as"
            " not sent."
        )
    kept = {"kept": simulator.t} if keeper.keeps else {}
    told = {"metric": metric_told(simulator), **_unsent(simulator)}
    write_json(folder / "status.json", {"finished": True, "rounds": ended, **kept, **told})
    shutil.rmtree(folder / "parts", ignore_errors=True)
    (folder / "store.scratch").unlink(missing_ok=True)
    return Finished(folder, simulator, time.perf_counter() - begun, compilations.seconds)


def _unsent(simulator: Simulator) -> dict[str, int]:
    """How many lies were not finite and counted as not sent, where there were any."""
    return {"unsent": simulator.unsent} if simulator.unsent else {}


def _join(records: Records) -> None:
    with reading_tables(records.parts, f"start the run in {str(records.run)!r} anew"):
        records.join()


def _interrupted(run: Path, simulator: Simulator) -> None:
    raise Interrupted(
        f"stopped after round {simulator.t} of {simulator.training.rounds}; go on with: coterie"
        f" resume {run}"
    )
