"""What a run was made from: the hash of its data and of every file it reads, kept in its folder.

The packed federation is hashed, not its files: a table that is saved again with the same rows is
the same data. Folders of before have no hash and are taken as they are.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from coterie.core import plugins
from coterie.core.errors import InvalidInput
from coterie.core.files import digest, write_json
from coterie.core.options import Options
from coterie.runs.experiment import Experiment

FILE = "inputs.json"


@lru_cache(maxsize=256)
def _file(path: str, changed: int, size: int) -> str:
    return digest(Path(path))


def _files(experiment: Experiment) -> dict[str, dict[str, str]]:
    """The files that options other than the data's name, by option."""
    groups: list[Options] = [experiment.model, experiment.training]
    groups += [part for c in experiment.contenders for part in c[:2]]
    groups += [part for part in (experiment.attack, experiment.network) if part is not None]
    given = {experiment.graph_of(c) for c in experiment.contenders} or {experiment.graph}
    groups += [graph for graph in given if graph.kind == "matrix"]
    out = {}
    for group in groups:
        for key, declared in group.public().items():
            value = getattr(group, key)
            named = isinstance(value, str) and declared.choices is None and key != "metric"
            if named and Path(value).is_file():
                now = Path(value).stat()
                out[f"{group.name}.{key}"] = {
                    "path": value,
                    "sha256": _file(str(Path(value).resolve()), now.st_mtime_ns, now.st_size),
                }
    return out


def inputs_of(experiment: Experiment) -> dict[str, Any]:
    """What the result depends on beside the config."""
    federation = experiment.federation()
    return {
        "data": {
            "name": getattr(experiment.data, "path", None) or federation.name,
            "clients": federation.clients,
            "sha256": experiment.data_hash(),
        },
        "files": _files(experiment),
        "imports": [{"path": str(i.path), "sha256": i.sha256} for i in plugins.imported()],
    }


def note(folder: Path, experiment: Experiment) -> None:
    write_json(folder / FILE, inputs_of(experiment))


def _noted(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and {"data", "files", "imports"} <= set(found)
    return found if whole else {}


def changed(folder: Path, experiment: Experiment, *, data: bool = True) -> str:
    """What is not as it was when the run in the folder began, in words; empty if all is. Without
    `data` the data are not looked at.
    """
    then = _noted(folder)
    if not then:
        return ""
    if data:
        now = inputs_of(experiment)["data"]
        if then["data"]["sha256"] != now["sha256"]:
            return f"the data {now['name']!r}"
    for option, file in _files(experiment).items():
        if option in then["files"] and then["files"][option]["sha256"] != file["sha256"]:
            return f"{option} ({file['path']})"
    given = {i.sha256 for i in plugins.imported()}
    lost = [file["path"] for file in then["imports"] if file["sha256"] not in given]
    return f"the imported file {lost[0]!r}" if lost else ""


def refuse_changed(folder: Path, experiment: Experiment, remedy: str, *, data: bool = True) -> None:
    """Refuse to go on with a run whose data or files are others now."""
    if what := changed(folder, experiment, data=data):
        raise InvalidInput(
            f"{what} was changed since the run in {str(folder)!r} began; put it back, or {remedy}."
        )


def refuse_without_imports(folder: Path) -> None:
    """Refuse a run that needs a file of the user's own, unless it was given, and as it was."""
    given = plugins.imported()
    for file in _noted(folder).get("imports", []):
        if any(i.sha256 == file["sha256"] for i in given):
            continue
        path = Path(file["path"])
        if any(i.path.name == path.name for i in given):
            raise InvalidInput(
                f"{path.name} was changed since the run in {str(folder)!r} began; put it back, or"
                " start a new run."
            )
        raise InvalidInput(
            f"the run in {str(folder)!r} was made with code of your own; give it again with"
            f" --import {path}"
        )
