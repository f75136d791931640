"""Models as safetensors files, for numpy, PyTorch or anything else that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import writing
from coterie.core.vector import Vector
from coterie.engine.simulate import Simulator
from coterie.runs.run import Say, load


def tensors(model: Vector) -> dict[str, np.ndarray]:
    """A model as named arrays: names are the paths in its pytree, joined by dots."""
    paths, _ = jax.tree_util.tree_flatten_with_path(model.tree)
    return {
        ".".join(_plain(step) for step in path) or "parameters": np.ascontiguousarray(leaf)
        for path, leaf in paths
    }


def _plain(step: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def make_folder(folder: Path) -> None:
    """A folder for models; it may hold some already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise InvalidInput(f"{str(folder)!r} cannot be written: {why}.") from None


def write_model(path: Path, model: Vector, facts: dict[str, str]) -> Path:
    """One model with what is known of it, as a safetensors file."""
    with writing(path) as temporary:
        save_file(tensors(model), temporary, metadata=facts)
    return path


def write_models(models: dict[str, Vector], facts: dict[str, str], folder: Path) -> list[Path]:
    """A client's models as safetensors files, one per view."""
    make_folder(folder)
    return [
        write_model(folder / f"{view}.safetensors", model, {**facts, "view": view})
        for view, model in models.items()
    ]


def client_number(simulator: Simulator, client: int | str) -> int:
    """The number of a client that is given by its name, or by its number.

    A name goes before a number that reads alike.
    """
    names = [str(name) for name in simulator.everybody.facts.get("clients", ())]
    if isinstance(client, str) and client in names:
        number = names.index(client)
    elif isinstance(client, str) and not client.isdecimal():
        if names:
            raise unknown("the client", client, names)
        raise InvalidInput(
            f"client is {client!r}, but must be from 0 to {simulator.everybody.clients - 1}: these"
            " clients have no names."
        )
    else:
        number = int(client)
    simulator.index_of(number)  # refuses who is not there
    return number


def export(
    folder: Path,
    clients: Sequence[int | str] | None,
    out: Path,
    *,
    view: str | None = None,
    say: Say = print,
) -> list[Path]:
    """Write clients' models as safetensors files (`clients` by name or number; None: all); returns
    the paths.
    """
    experiment, simulator, _ = load(folder, say=say)
    if simulator.t == 0:
        say("this run has no checkpoint yet: these are the initial models.")
    views = simulator.method.model_views
    chosen = view or views[0]
    if chosen not in views:
        raise InvalidInput(
            f"view is {chosen!r}, but {experiment.method.name} has {', '.join(map(repr, views))}."
        )
    numbers = (
        simulator.members.tolist()
        if clients is None
        else [client_number(simulator, client) for client in clients]
    )
    single = clients is not None and len(clients) == 1 and out.suffix == ".safetensors"
    make_folder(out.parent if single else out)
    names = simulator.everybody.facts.get("clients")
    paths = []
    for k in numbers:
        facts = {
            "client": str(k),
            **({"site": str(names[k])} if names else {}),
            "view": chosen,
            "method": experiment.method.name,
            "round": str(simulator.t),
            "model": experiment.model.name,
        }
        path = out if single else out / f"client-{k:05d}.safetensors"
        paths.append(write_model(path, simulator.models(k)[chosen], facts))
    return paths
