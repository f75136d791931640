"""`coterie adapt`: read newcomers' data as the run's was read, personalise, write their models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from coterie.core.errors import InvalidInput
from coterie.core.files import read_arrays
from coterie.data.federation import Federation, from_arrays
from coterie.data.outline import Outline, outline
from coterie.data.tables import newcomers_from_table
from coterie.engine.adapt import Adapted, adapt
from coterie.engine.simulator import Simulator
from coterie.models.exported.model import is_exported, read_facts
from coterie.runs.card import Card, data_facts, method_facts, now, target_scale, versions
from coterie.runs.card_score import TestRows, score_facts
from coterie.runs.experiment import Experiment
from coterie.runs.export import exported_of, folder_name, make_folder, write_folder
from coterie.runs.kit import Kit, is_kit, read_kit
from coterie.runs.run import Say, load


def read_newcomers(
    path: Path,
    like: Federation,
    *,
    client: str | None,
    target: str | None,
    test: float,
    seed: int = 0,
) -> Federation:
    """A table, for runs on tables; or an .npz with x (scaled as the run's data is), y and perhaps
    client numbers, for any run.
    """
    if path.suffix == ".npz" and "prepared" not in like.facts:
        arrays = read_arrays(path, "the newcomers' file")
        if "x" not in arrays or "y" not in arrays:
            raise InvalidInput(
                f"the newcomers' file {str(path)!r} holds {', '.join(arrays) or 'nothing'}, but"
                " must hold x and y."
            )
        x = (
            arrays["x"].reshape(len(arrays["x"]), *like.input_shape)
            if arrays["x"].size == len(arrays["x"]) * np.prod(like.input_shape)
            else arrays["x"]
        )
        owner = arrays.get("client", np.zeros(len(x), int))
        y = arrays["y"].astype(np.int32 if like.task == "classification" else np.float32)
        return from_arrays(
            "newcomers",
            x.astype(np.float32),
            y,
            owner,
            task=like.task,
            classes=like.classes,
            validation=0.0,
            test=test,
            seed=seed,
        )
    return newcomers_from_table(path, like, client=client, target=target, test=test, seed=seed)


def _federation(folder: Path, say: Say) -> tuple[Experiment | Kit, Simulator]:
    """What the folder of a run, or what `export_kit` wrote, has for newcomers."""
    if is_kit(folder):
        kit = read_kit(folder)
        return kit, kit.simulator()
    if is_exported(folder):
        facts = read_facts(folder)
        raise InvalidInput(
            f"{str(folder)!r} holds the model of {facts['client']!r} alone, which is not enough for"
            " newcomers; write what they need with: coterie export RUN --newcomers -o FOLDER"
        )
    experiment, simulator, _ = load(folder, say=say, data=False)
    return experiment, simulator


def adapt_into(
    folder: Path,
    data: Path,
    out: Path,
    *,
    client: str | None,
    target: str | None,
    rounds: int,
    test: float,
    onnx: bool = False,
    say: Say = print,
) -> tuple[list[Path], Table]:
    """Models of newcomers, a folder each, and a table of how they do on their own test rows.

    The federation's data are not needed.
    """
    experiment, simulator = _federation(folder, say)
    if simulator.t == 0:
        say("this run has no checkpoint yet: newcomers start from the initial model.")
    newcomers = read_newcomers(data, simulator.federation, client=client, target=target, test=test)
    adapted = adapt(simulator, newcomers, rounds=rounds)
    view = simulator.method.model_views[0]
    names = newcomers.facts.get("clients") or [str(k) for k in range(newcomers.clients)]
    known = outline(newcomers)
    known.facts.update({k: v for k, v in simulator.everybody.facts.items() if k in SHARED_FACTS})
    paths = []
    make_folder(out)
    for k, name in enumerate(map(str, names)):
        mine = adapted.models[view].map(lambda leaf: leaf[k])  # noqa: B023
        made = exported_of(simulator, experiment, mine, name, view)
        x, y = newcomers.test.client(k)
        rows = TestRows()
        if len(x):
            rows = TestRows.of_outputs(simulator.metric, made.outputs_of(x), y)
        card = _card(experiment, known, (k, name, view), simulator, (rounds, rows))
        paths.append(write_folder(out / folder_name(name), made, card, onnx=onnx))
    return paths, _summary(experiment, simulator, newcomers, adapted, rounds)


SHARED_FACTS = ("labels", "features", "target", "scaling", "prepared")
"""What newcomers have of the federation's facts."""


def _card(
    experiment: Experiment | Kit,
    known: Outline,
    of: tuple[int, str, str],
    simulator: Simulator,
    found: tuple[int, TestRows],
) -> Card:
    number, name, view = of
    rounds, rows = found
    data = data_facts(known, number)
    data["clients"] = simulator.everybody.clients
    return Card(
        {
            "client": name,
            "view": view,
            "date": now(),
            "run": experiment.name,
            "rounds": experiment.training.rounds,
            "round": simulator.t,
            "keep": experiment.training.keep,
            "data": data,
            "training": method_facts(experiment),
            "adapted": {"rounds": rounds, "rows": int(known.sizes("train")[number])},
            "score": score_facts(simulator.metric, rows, target_scale(known)),
            "gain over Local": None,
            "bytes": None,
            "versions": versions(),
            "members' models inside": 0,
        }
    )


def _summary(
    experiment: Experiment | Kit,
    simulator: Simulator,
    newcomers: Federation,
    adapted: Adapted,
    rounds: int,
) -> Table:
    names = newcomers.facts.get("clients") or [str(k) for k in range(newcomers.clients)]
    table = Table(
        title=f"newcomers after {rounds} local rounds of {experiment.method.title}",
        title_justify="left",
        caption=f"{simulator.metric.title} on test rows, {simulator.metric.better}",
        caption_justify="left",
    )
    for column in (
        "client",
        "training rows",
        "test rows",
        *(f"{v} model" for v in simulator.method.model_views),
    ):
        table.add_column(column, justify="left" if column == "client" else "right")
    for k in range(newcomers.clients):
        mine = simulator.metric.value(adapted.scores.score[:, k])
        scores = [f"{value:.4f}" if np.isfinite(value) else "–" for value in mine]
        table.add_row(
            str(names[k]), str(newcomers.train.sizes[k]), str(newcomers.test.sizes[k]), *scores
        )
    return table
