"""Models that can be used: a folder with the model, its preprocessing, a schema and a card; or a
single safetensors or ONNX file. None of it needs the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import writing, writing_folder
from coterie.core.trees import named_leaves
from coterie.core.vector import Vector
from coterie.data.outline import outline
from coterie.engine.personal import adapts_on_data, all_views
from coterie.engine.simulate import Simulator
from coterie.models.exported.model import Exported, is_exported
from coterie.models.memorised import Stored
from coterie.models.mixture import WEIGHTS, Mixed
from coterie.runs import outlines
from coterie.runs.card import Card, Cards
from coterie.runs.experiment import Experiment
from coterie.runs.kit import Kit, is_kit
from coterie.runs.run import Say, load

SHARED = "@global"
"""The folder of the model that belongs to nobody alone, beside those of the clients."""
ONNX = "model.onnx"
MANY = 8
"""From so many clients on, all models are worked out at once."""


def tensors(model: Vector) -> dict[str, np.ndarray]:
    """A model as named arrays: names are the paths in its pytree, joined by dots."""
    return named_leaves(model.tree)


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
    simulator.roll.index_of(number)  # refuses who is not there
    return number


def client_name(simulator: Simulator, number: int) -> str:
    """A client's name, or its number where it has none."""
    names = simulator.everybody.facts.get("clients")
    return str(names[number]) if names else str(number)


def folder_name(client: str) -> str:
    """A client's name as the name of a folder: what a path cannot hold is written as in addresses.

    >>> folder_name("site a"), folder_name("a/b"), folder_name(".."), folder_name("7")
    ('site a', 'a%2Fb', '%2E.', 'client-00007')
    """
    if client.isdecimal() and client.isascii() and len(client) <= 5:
        return f"client-{int(client):05d}" if str(int(client)) == client else client
    encoded = lambda c: "".join(f"%{byte:02X}" for byte in c.encode())
    kept = lambda c: c.isalnum() or c in " -_.,()+="
    name = "".join(c if kept(c) else encoded(c) for c in client)
    return encoded(name[:1]) + name[1:] if name[:1] in (".", " ", "-", "") else name


def load_models(folder: Path, say: Say) -> tuple[Experiment, Simulator]:
    """A run's experiment and a simulator that gives its models, without the training data where
    that can be.
    """
    experiment, simulator, _ = load(folder, say=say, data=False)
    if adapts_on_data(simulator) and outlines.read_models(folder, simulator, 0) is None:
        say(
            f"{experiment.method.title} works models out from training data, and this run did not"
            " end, so the data are read."
        )
        experiment, simulator, _ = load(folder, say=say)
    return experiment, simulator


def models_of(
    folder: Path, simulator: Simulator, numbers: Sequence[int], view: str
) -> Iterator[Vector]:
    """One view of some clients, one after the other."""
    kept = outlines.read_models(folder, simulator, 0) is not None
    several = all_views(simulator)[view] if not kept and len(numbers) >= MANY else None
    for number in numbers:
        place = simulator.roll.index_of(number)
        if kept:
            found = outlines.read_models(folder, simulator, place)
            assert found is not None
            yield found[view]
        elif several is not None:
            yield several.map(lambda leaf: leaf[min(place, len(leaf) - 1)])  # noqa: B023
        else:
            yield simulator.models(number)[view]


def exported_of(
    simulator: Simulator, experiment: Experiment | Kit, model: Vector, client: str | None, view: str
) -> Exported:
    """A model with all that is needed to use it."""
    shape, facts = simulator.federation.shape, simulator.everybody.facts
    if isinstance(model.tree, Stored):
        raise InvalidInput(
            f"the method is {experiment.method.name}, but its models hold their clients' training"
            " rows and are not exported; use a run of another method, e.g. fedavg."
        )
    return Exported(
        spec=experiment.model,
        components=len(model.tree[WEIGHTS]) if isinstance(simulator.model.apply, Mixed) else 0,
        task=shape.task,
        inputs=shape.inputs,
        outputs=shape.outputs,
        parameters=model.tree,
        prepared=facts.get("prepared"),
        labels=tuple(map(str, facts.get("labels", ()))),
        target=str(facts.get("target", "")),
        client=client,
        view=view,
        method=experiment.method.name,
        round=simulator.t,
        scaling=str(facts.get("scaling", "")),
    )


def write_folder(path: Path, exported: Exported, card: Card, *, onnx: bool = False) -> Path:
    """A folder with everything, all of it or nothing."""
    ours = lambda folder: is_exported(folder) or is_kit(folder)
    with writing_folder(path, ours) as temporary:
        exported.write(temporary)
        card.write(temporary)
        if onnx:
            write_onnx(temporary / ONNX, exported)
    return path


def write_onnx(path: Path, exported: Exported) -> Path:
    from coterie.models.exported.onnx import to_onnx

    made = to_onnx(exported)
    with writing(path) as temporary:
        temporary.write_bytes(made.SerializeToString())
    return path


def _view(experiment: Experiment, views: Sequence[str], view: str | None) -> str:
    chosen = view or views[0]
    if chosen not in views:
        raise InvalidInput(
            f"view is {chosen!r}, but {experiment.method.name} has {', '.join(map(repr, views))}."
        )
    return chosen


def export(
    folder: Path,
    clients: Sequence[int | str] | None,
    out: Path | None = None,
    *,
    view: str | None = None,
    onnx: bool = False,
    say: Say = print,
) -> list[Path]:
    """Write clients' models (`clients` by name or number; None: all), a folder each; returns the
    paths.

    One client: `out` is its folder, or a .safetensors or .onnx file. Several: folders inside `out`,
    and the shared model beside them where the method has one.
    """
    experiment, simulator = load_models(folder, say)
    if simulator.t == 0:
        say("this run has no checkpoint yet: these are the initial models.")
    views = simulator.method.model_views
    chosen = _view(experiment, views, view)
    several = clients is None or len(clients) > 1
    numbers = (
        simulator.members.tolist()
        if clients is None
        else [client_number(simulator, client) for client in clients]
    )
    names = [client_name(simulator, number) for number in numbers]
    where: Callable[[str], Path] = lambda name: (out or folder / "models") / folder_name(name)
    if not several and out is not None:
        where = lambda name: out
    make_folder(where(names[0]).parent)
    paths = []
    cards = Cards(folder, experiment, outline(simulator.everybody), simulator.t)
    models = models_of(folder, simulator, numbers, chosen)
    for number, name, model in zip(numbers, names, models, strict=True):
        made, path = exported_of(simulator, experiment, model, name, chosen), where(name)
        if path.suffix == ".onnx":
            write_onnx(path, made)
        elif path.suffix == ".safetensors":
            write_model(path, model, {**made.short(), "client": str(number)})
        else:
            write_folder(path, made, cards.of(number, name, chosen), onnx=onnx)
        paths.append(path)
    if several and "global" in views:
        model = next(models_of(folder, simulator, numbers[:1], "global"))
        made = exported_of(simulator, experiment, model, None, "global")
        card = cards.of(None, None, "global")
        write_folder((out or folder / "models") / SHARED, made, card, onnx=onnx)
    return paths


def export_kit(folder: Path, out: Path, *, say: Say = print) -> Path:
    """Write what newcomers need of a run, without anybody's rows."""
    experiment, simulator, _ = load(folder, say=say, data=False)
    if simulator.t == 0:
        say("this run has no checkpoint yet: newcomers would start from the initial model.")
    kit = Kit.of(simulator, experiment.method, experiment.model)
    known = outline(simulator.everybody)
    card = Cards(folder, experiment, known, simulator.t).of(None, None, None)
    make_folder(out.parent)
    with writing_folder(out, lambda there: is_kit(there) or is_exported(there)) as temporary:
        kit.write(temporary)
        card.write(temporary)
        if "global" in simulator.method.model_views:
            models: dict[str, Any] = simulator.models(int(simulator.members[0]))
            exported_of(simulator, experiment, models["global"], None, "global").write(temporary)
    return out
