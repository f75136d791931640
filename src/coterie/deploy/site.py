"""A participant's own side of a deployment: who it is, where its data lies, what it listens on.

One TOML file per machine; paths are relative to it.

plan = "federation.toml"       # the same on all machines
name = "ward-a"
folder = "state"               # what this participant keeps; its own, and nobody else's
keys = "keys/ward-a"           # made by `coterie keys issue`
hub = "hub.example.org:9092"   # clients of a hub
share_scores = false           # whether the hub may know how well the models do here
modules = ["wards.nets"]       # Python modules that the plan may name, if it names any

[data]
path = "ward-a.csv"            # a table (or a folder of tables) with the plan's features and
test = 0.25                    # target; or an .npz made by `save_own`

Peers have, instead of a hub:

number = 0
listen = "tls/0.0.0.0:7447"
[[neighbours]]
name = "ward-b"
number = 1
endpoint = "tls/ward-b.example.org:7447"
weight = 1.0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import read_arrays, writing
from coterie.core.options import Options, option, traced_dataclass
from coterie.data.federation import Federation, Split
from coterie.data.tables import KINDS, newcomers_from_table, read_table
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.permission import check_modules, module_names
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem
from coterie.deploy.worker import Worker
from coterie.models.torch.spec import imported
from coterie.runs.experiment import Experiment

SPLITS = ("train", "validation", "test")


@traced_dataclass
class OwnData(Options):
    """Where a participant's data lies."""

    name: ClassVar[str] = "data"

    path: str = option(help="a table, a folder of tables, or an .npz with x_train, y_train, …")
    missing: str = option(
        "refuse",
        "missing numbers: refuse them, or put the plan's mean there",
        choices=("refuse", "mean"),
    )
    validation: float = option(
        0.0, "share of the rows for validation", low=0, high=0.9, static=True
    )
    test: float = option(0.25, "share of the rows for testing", low=0, high=0.9, static=True)
    loader: str | None = option(
        None,
        "package.module:name of a function that gives a PyTorch DataLoader to train on; `path` is"
        " then for scoring",
    )
    seed: int = option(0, "of the cut into train, validation and test", low=0)

    def load(self, plan: Plan, base: Path = Path()) -> Federation:
        """This participant's data as a federation of one."""
        path = base / Path(self.path).expanduser()
        if (
            path.suffix == ".npz"
            and path.is_file()
            and (made := _read_splits(path, plan.problem)) is not None
        ):
            return made
        if not plan.problem.features:
            raise InvalidInput(
                f"data.path is {self.path!r}, a table, but the plan's problem names no features and"
                " target to read it by."
            )
        reading = plan.problem.reading()
        texts = reading.facts["prepared"].texts
        if path.is_dir():
            files = sorted(
                p for p in path.iterdir() if p.is_file() and p.name.lower().endswith(KINDS)
            )
            if not files:
                raise InvalidInput(
                    f"data.path is {self.path!r}, but that folder holds no table"
                    f" ({', '.join(KINDS)})."
                )
            table = pa.concat_tables(
                [read_table(p, [plan.problem.target], texts=texts) for p in files],
                promote_options="permissive",
            )
        else:
            table = read_table(path, [plan.problem.target], texts=texts)
        return newcomers_from_table(
            table,
            reading,
            missing=self.missing,
            own_scaling=plan.problem.mean is None,
            validation=self.validation,
            test=self.test,
            seed=self.seed,
        )

    def own_loader(self) -> Any:
        """The participant's own PyTorch loader, if it has one."""
        return None if self.loader is None else imported("data.loader", self.loader)()


def _read_splits(path: Path, problem: Problem) -> Federation | None:
    """An .npz with x_train, y_train (and x_test, …); None when it is an ordinary table."""
    arrays = read_arrays(path, "the data")
    if "x_train" not in arrays:
        return None
    x, y = arrays["x_train"], arrays.get("y_train")
    if y is None:
        raise InvalidInput(f"{str(path)!r} has x_train but no y_train.")

    def part(name: str) -> Split:
        a, b = arrays.get(f"x_{name}", x[:0]), arrays.get(f"y_{name}", y[:0])
        return Split(a, b, np.array([0, len(a)]))

    train, validation, test = (part(name) for name in SPLITS)
    return Federation(path.stem, train, validation, test, problem.task, len(problem.labels))


def save_own(federation: Federation, client: int, path: Path) -> None:
    """One client's data as an .npz that a participant can use."""
    arrays = {}
    for name, split in zip(SPLITS, federation.splits, strict=True):
        arrays[f"x_{name}"], arrays[f"y_{name}"] = split.client(client)
    with writing(path) as temporary, temporary.open("wb") as f:
        np.savez(f, **arrays)  # type: ignore[arg-type]


KEYS = (
    "plan",
    "name",
    "number",
    "folder",
    "keys",
    "hub",
    "share_scores",
    "data",
    "listen",
    "neighbours",
    "modules",
)


@dataclasses.dataclass(frozen=True)
class PeerOf:
    """A neighbour in a config: who it is, and where it listens ("" when it is the one that
    connects).
    """

    who: Neighbour
    endpoint: str


@dataclasses.dataclass(frozen=True)
class Site:
    """A participant's config."""

    path: Path
    plan: Plan
    name: str
    number: int
    folder: Path
    data: OwnData
    keys: Path | None = None
    hub: str = ""
    share_scores: bool = False
    listen: str = ""
    neighbours: tuple[PeerOf, ...] = ()

    @classmethod
    def from_file(cls, path: Path) -> Site:
        config = Experiment.read(path, "config")
        try:
            return cls._from_config(path, config)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def _from_config(cls, path: Path, config: dict[str, Any]) -> Site:
        for key in config:
            if key not in KEYS:
                raise unknown("the key", key, KEYS)
        text = {
            key: _text(config, key, needed=key in ("plan", "name"))
            for key in ("plan", "name", "folder", "keys", "hub", "listen")
        }
        base = path.parent
        plan = _allowed_plan(base / text["plan"], config.get("modules", []))
        number = config.get("number")
        if number is None:
            number = plan.number(text["name"])
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < plan.size:
            raise InvalidInput(
                f"number is {number!r}, but must be a whole number from 0 to {plan.size - 1}."
            )
        share = config.get("share_scores", False)
        if not isinstance(share, bool):
            raise InvalidInput(f"share_scores is {share!r}, but must be true or false.")
        data = config.get("data")
        if not isinstance(data, dict):
            raise InvalidInput("the table [data] is missing; it must have a path.")
        listed = config.get("neighbours", [])
        if not isinstance(listed, list):
            raise InvalidInput(f"neighbours is {listed!r}, but must be tables [[neighbours]].")
        return cls(
            path=path,
            plan=plan,
            name=text["name"],
            number=number,
            folder=base / (text["folder"] or f"{text['name']}-state"),
            data=OwnData.from_config(data),
            keys=base / text["keys"] if text["keys"] else None,
            hub=text["hub"],
            share_scores=share,
            listen=text["listen"],
            neighbours=tuple(_neighbour(n, plan) for n in listed),
        )

    def load_data(self) -> Federation:
        return self.data.load(self.plan, self.path.parent)

    def worker(self) -> Worker:
        """This participant's own work: its data and, if it has one, its loader."""
        return Worker(self.plan, self.number, self.load_data(), self.data.own_loader())


def _allowed_plan(path: Path, modules: Any) -> Plan:
    """The plan, which others have written: Python modules that it names are imported only if this
    site's own file allows them.
    """
    allowed, config = module_names("modules", modules), Experiment.read(path, "plan")
    check_modules(
        config,
        allowed,
        lambda module: (
            "this file does not allow that module to be imported here; if it is to be trusted:"
            f' modules = ["{module}"].'
        ),
    )
    try:
        return Plan.from_config(config)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _text(config: Mapping[str, Any], key: str, *, needed: bool = False) -> str:
    value = config.get(key, "")
    if not isinstance(value, str) or (needed and not value):
        raise InvalidInput(
            f"{key} is {value!r}, but must be a string."
            if key in config
            else f"the key {key!r} is missing."
        )
    return value


def _neighbour(given: Any, plan: Plan) -> PeerOf:
    known = ("name", "number", "endpoint", "weight")
    if not isinstance(given, dict):
        raise InvalidInput(
            f"a neighbour is {given!r}, but must be a table with name, number, endpoint and weight."
        )
    for key in given:
        if key not in known:
            raise unknown("the key of a neighbour,", key, known)
    name, weight = _text(given, "name", needed=True), given.get("weight", 1.0)
    number = given.get("number")
    if number is None and plan.peers:
        number = plan.number(name)
    number = -1 if number is None else number  # a hub asks by name, and has no number itself
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(
            f"the number of neighbour {name!r} is {number!r}, but must be a whole number."
        )
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
        raise InvalidInput(
            f"the weight of neighbour {name!r} is {weight!r}, but must be a number > 0."
        )
    return PeerOf(Neighbour(name, number, float(weight)), _text(given, "endpoint"))
