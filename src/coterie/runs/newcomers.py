"""`coterie adapt`: read newcomers' data as the run's was read, personalise, write their models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from coterie.core.errors import InvalidInput
from coterie.core.files import read_arrays
from coterie.data.federation import Federation, from_arrays
from coterie.data.tables import newcomers_from_table
from coterie.engine.adapt import adapt
from coterie.runs.export import make_folder, write_model
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


def adapt_into(
    folder: Path,
    data: Path,
    out: Path,
    *,
    client: str | None,
    target: str | None,
    rounds: int,
    test: float,
    say: Say = print,
) -> tuple[list[Path], Table]:
    """Models of newcomers as safetensors files, and a table of how they do on their own test
    rows.
    """
    experiment, simulator, _ = load(folder, say=say)
    if simulator.t == 0:
        say("this run has no checkpoint yet: newcomers start from the initial model.")
    newcomers = read_newcomers(data, simulator.federation, client=client, target=target, test=test)
    adapted = adapt(simulator, newcomers, rounds=rounds)
    view = simulator.method.model_views[0]
    names = newcomers.facts.get("clients") or [str(k) for k in range(newcomers.clients)]
    paths = []
    make_folder(out)
    for k in range(newcomers.clients):
        path = out / f"newcomer-{k:05d}.safetensors"
        facts = {
            "client": str(names[k]),
            "view": view,
            "method": experiment.method.name,
            "round": str(simulator.t),
            "model": experiment.model.name,
        }
        mine = adapted.models[view].map(lambda leaf: leaf[k])  # noqa: B023
        paths.append(write_model(path, mine, facts))
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
    return paths, table
