"""From what somebody asks on the command line to an experiment."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.errors import InvalidInput
from coterie.runs.experiment import Experiment
from coterie.runs.presets import own_data, with_methods


class Asked(NamedTuple):
    """What to compare on: an experiment file, somebody's own table or folder, or a data set."""

    path: Path | None
    data: str | None = None
    client: str | None = None
    target: str | None = None

    @property
    def own(self) -> bool:
        """Whether the path is somebody's own data."""
        return self.path is not None and (self.path.suffix != ".toml" or self.path.is_dir())

    def check(self) -> None:
        """Refuse what contradicts itself or would be ignored."""
        if self.path is None and self.data is None:
            raise InvalidInput(
                "there is nothing to compare on: give an experiment file or --data NAME."
            )
        if self.own:
            if self.data is not None:
                raise InvalidInput(
                    f"--data is {self.data!r}, but {str(self.path)!r} is given too; give one of"
                    " them."
                )
            return
        for name, value in (("client", self.client), ("target", self.target)):
            if value is not None:
                what = repr(self.data) if self.data is not None else f"{str(self.path)!r}"
                raise InvalidInput(
                    f"--{name} is {value!r}, but it names a column of your own table or folder and"
                    f" {what} is none; leave it out."
                )


def apply(settings: Sequence[str] | None, config: dict[str, Any]) -> None:
    """`--set training.rounds=50 --set method.name=fedu` onto a config; values are read as TOML,
    else taken as text.
    """
    for item in settings or []:
        path, equals, text = item.partition("=")
        if not equals or not path:
            raise InvalidInput(f"--set is {item!r}, but must be of the form section.key=value.")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        *sections, key = path.split(".")
        table = config
        for section in sections:
            if isinstance(table.get(section), str):
                table[section] = {"name": table[section]}
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise InvalidInput(f"--set is {item!r}, but {section} is not a table.")
        table[key] = value


def chosen_experiment(
    path: Path | None,
    settings: Sequence[str] | None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data_dir: Path | None = None,
) -> Experiment:
    """The experiment of a file (or of settings alone) with what was asked beside it."""
    config: dict[str, Any] = Experiment.read(path) if path is not None else {}
    where = [f"data.data_dir={json.dumps(str(data_dir))}"] if data_dir else []
    apply([*(settings or []), *where], config)
    if methods:
        for key in ("method", "methods"):
            table = config.get(key)
            if isinstance(table, dict) and "name" not in table:
                raise InvalidInput(
                    f"{key}.{next(iter(table), '')} is given, but not of which method; beside"
                    " --method, options go into an experiment file, in a [[methods]] table with"
                    " the method's name."
                )
        listed = [*config.get("methods", []), config.pop("method", None)]
        known = {m["name"]: m for m in listed if isinstance(m, dict) and "name" in m}
        config["methods"] = [known.get(name, name) for name in methods]
    if seeds:
        config["seeds"] = list(seeds)
    return Experiment.from_config(config)


def compared_experiment(
    asked: Asked,
    settings: Sequence[str] | None,
    methods: Sequence[str] | None,
    seeds: Sequence[int] | None,
    data_dir: Path | None,
) -> tuple[str, Experiment]:
    """A name for the folder, and what to compare."""
    asked.check()
    if asked.own:
        assert asked.path is not None
        if data_dir is not None:
            raise InvalidInput(
                f"--data-dir is {str(data_dir)!r}, but {str(asked.path)!r} is your own data; leave"
                " it out."
            )
        config = own_data(asked.path, asked.client, asked.target)
        apply(settings, config)
        config = with_methods(config, methods) | ({"seeds": list(seeds)} if seeds else {})
        return asked.path.stem, Experiment.from_config(config)
    if asked.data is not None:
        settings = [f"data.name={json.dumps(asked.data)}", *(settings or [])]
    name = asked.path.stem if asked.path is not None else str(asked.data)
    return name, titled(chosen_experiment(asked.path, settings, methods, seeds, data_dir), name)


def titled(experiment: Experiment, name: str) -> Experiment:
    """An experiment without a name of its own is called by its file."""
    return experiment.with_(name=name) if experiment.name == "experiment" else experiment
