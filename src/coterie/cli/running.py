"""`coterie run`, `resume` and `launch`: one method into a folder, by one process or by several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.as_json import Json, beside, print_json
from coterie.cli.console import DataDir, Force, Import, Set, Track, load_plugins, out, say

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The run's folder (default: runs/<name of the file>)."),
]
Processes = Annotated[int, typer.Option(help="Processes that do the run together.")]
Process = Annotated[int, typer.Option(help="Which of the --processes this is, from 0.")]
Coordinator = Annotated[
    str, typer.Option(help="host:port where process 0 listens for the others (trusted network).")
]
HERE = "127.0.0.1:9370"


def _place(experiment: Path, folder: Path | None) -> Path:
    return folder or Path("runs") / experiment.stem


def _join(processes: int, process: int, coordinator: str) -> bool:
    """One of several processes, if asked for; gives whether it is the one that prints."""
    if processes == 1 and process == 0:
        return True
    from coterie.core import crew

    crew.join(crew.Place(processes, process, coordinator))
    return crew.leads()


def run(
    experiment: Annotated[
        Path,
        typer.Argument(
            help=r"A TOML file with \[data], \[model], \[training], \[method] (and \[graph])."
        ),
    ],
    folder: Out = None,
    data_dir: DataDir = None,
    settings: Set = None,
    imports: Import = None,
    force: Force = False,
    track: Track = None,
    as_json: Json = False,
    processes: Processes = 1,
    process: Process = 0,
    coordinator: Coordinator = HERE,
) -> None:
    """Run one method into a folder that can be killed, resumed and exported from.

    The folder holds config.toml (resolved), environment.json, inputs.json (hashes of the data and
    files it was made from), rounds.parquet, clients.parquet, ledger.parquet, timing.parquet and
    checkpoints.
    """
    first = _join(processes, process, coordinator)
    load_plugins(imports)
    from coterie.cli.progress import bars
    from coterie.data import warn_without_test
    from coterie.runs import run as runs
    from coterie.runs.settings import chosen_experiment

    chosen = chosen_experiment(experiment, settings, data_dir=data_dir)
    title = chosen.method.title
    if warning := warn_without_test(chosen.federation()):
        say(warning)
    place = _place(experiment, folder)
    if not first:
        runs.start(chosen, place, force=force, say=lambda sentence: None)
        return
    with bars(beside(as_json)) as begin:
        finished = runs.start(chosen, place, force=force, progress=begin(title, 0, 1), say=say)
    _finished(finished, as_json)


def resume(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a run that was killed or interrupted.")
    ],
    imports: Import = None,
    track: Track = None,
    as_json: Json = False,
    processes: Processes = 1,
    process: Process = 0,
    coordinator: Coordinator = HERE,
) -> None:
    """Go on with a run; it ends bit for bit as if it had never been disturbed.

    With another number of processes or devices its last bits may differ.
    """
    first = _join(processes, process, coordinator)
    load_plugins(imports)
    from coterie.cli.progress import bars
    from coterie.runs import run as runs

    if not first:
        runs.resume(folder, say=lambda sentence: None)
        return
    with bars(beside(as_json)) as begin:
        finished = runs.resume(folder, progress=begin(folder.name, 0, 1), say=say)
    _finished(finished, as_json)


def launch(
    experiment: Annotated[
        Path, typer.Argument(help="An experiment as for `coterie run`, or the folder of a run.")
    ],
    processes: Processes = 2,
    folder: Out = None,
    data_dir: DataDir = None,
    settings: Set = None,
    imports: Import = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run, or resume, with several processes on this machine that share its cores.

    For several machines call `coterie run` on each, with --processes, --process and --coordinator.
    """
    from coterie.runs.launch import launch as begin

    given = [text for file in imports or [] for text in ("--import", str(file))]
    if experiment.is_dir():
        command, place = ["resume", str(experiment), *given], experiment
    else:
        place = _place(experiment, folder)
        command = ["run", str(experiment), "--out", str(place), *given]
        command += [text for value in settings or [] for text in ("--set", value)]
        command += ["--data-dir", str(data_dir)] if data_dir else []
        command += ["--force"] if force else []
    command += ["--json"] if as_json else []
    begin(command, processes, f"go on with: coterie launch {place} --processes {processes}")


def _finished(finished: Any, as_json: bool) -> None:
    from coterie.core.files import reading_tables
    from coterie.report.plain import run_plain
    from coterie.report.summary import run_table

    with reading_tables(finished.folder, "run its config.toml again"):
        if as_json:
            times = {"seconds": finished.seconds, "compile_seconds": finished.compile_seconds}
            print_json(run_plain(finished.folder, finished.simulator.metric) | times)
            return
        out.print(run_table(finished.folder, finished.simulator.metric))
    out.print(
        f"{finished.folder} · {finished.seconds:.1f} s, of which {finished.compile_seconds:.1f} s"
        " compiling",
        highlight=False,
    )
