"""The card of an exported model: what it was made from and how, how well it did and how sure that
is, and what it is not for. Facts of the data only, never rows.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coterie.adversary import Attack
from coterie.core.errors import InvalidInput
from coterie.core.files import write_json, write_text
from coterie.core.metrics import metric_of
from coterie.core.options import as_written
from coterie.data.federation import SPLITS
from coterie.data.outline import Outline
from coterie.engine.training import Training
from coterie.methods.graph import GraphMethod
from coterie.methods.local import equal_compute
from coterie.models.base import ModelSpec
from coterie.runs.card_score import AllRows, TestRows, gain_facts, score_facts
from coterie.runs.contender import Contender
from coterie.runs.environment import environment
from coterie.runs.experiment import Experiment
from coterie.runs.records import ROWS

CARD, TEXT = "card.json", "card.md"


@dataclasses.dataclass(frozen=True)
class Card:
    """Facts as plain values; `text` says them for people."""

    facts: dict[str, Any]

    def write(self, folder: Path) -> None:
        write_json(folder / CARD, self.facts)
        write_text(folder / TEXT, self.text())

    def text(self) -> str:
        from coterie.runs.card_text import card_text

        return card_text(self.facts)


def _beside(folder: Path, experiment: Experiment) -> Path | None:
    """The run of Local at equal gradient steps that a comparison made beside this one."""
    wanted = Contender(equal_compute(experiment.method)).to_config()
    if experiment.method.name == "local" or not folder.parent.is_dir():
        return None
    for config in sorted(folder.parent.glob("*/config.toml")):
        try:
            with as_written():
                other = Experiment.from_file(config)
            same = other.data == experiment.data and other.data_seed == experiment.data_seed
            same &= other.model == experiment.model and other.training == experiment.training
            if same and other.to_config().get("method") == wanted and _ended(config.parent):
                return config.parent
        except InvalidInput:
            continue
    return None


def _ended(folder: Path) -> bool:
    return (folder / ROWS).is_file()


VERSIONS = ("coterie", "python", "jax", "numpy")


def versions() -> dict[str, Any]:
    """Of what runs now."""
    return {k: v for k, v in environment().items() if k in VERSIONS}


def _versions_of(folder: Path) -> dict[str, Any]:
    """Of what a run was made with."""
    try:
        found = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return versions()
    return {k: found[k] for k in VERSIONS if k in found}


def now() -> str:
    """The date for a card."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def data_facts(known: Outline, number: int | None) -> dict[str, Any]:
    """What may be told of the data: sizes and names, no rows."""
    told: dict[str, Any] = {
        "name": known.name,
        "task": known.task,
        "clients": known.clients,
        "inputs": list(known.input_shape),
        "rows of all": {split: int(known.sizes(split).sum()) for split in SPLITS},
    }
    for name in ("target", "features", "labels"):
        if name in known.facts:
            told[name] = known.facts[name]
    if number is not None:
        told["rows"] = {split: int(known.sizes(split)[number]) for split in SPLITS}
        if known.task == "classification":
            labels = known.facts.get("labels") or [str(c) for c in range(known.classes)]
            counts = known.label_counts()[number].tolist()
            told["training rows of each class"] = dict(zip(map(str, labels), counts, strict=True))
    return told


class Described(Protocol):
    """An experiment, or what is left of one for newcomers."""

    @property
    def contender(self) -> Contender: ...
    @property
    def model(self) -> ModelSpec: ...
    @property
    def training(self) -> Training: ...
    @property
    def attack(self) -> Attack | None: ...


def method_facts(experiment: Described) -> dict[str, Any]:
    """How it was trained: all options that are not left at nothing."""
    method, channel, _ = experiment.contender
    told = {
        "method": method.name,
        "title": method.title,
        "paper": method.paper,
        "options": method.to_config(),
        "channel": {"name": channel.name, **channel.to_config()},
        "model": {"name": experiment.model.name, **experiment.model.to_config()},
        "training": experiment.training.to_config(),
    }
    if experiment.attack is not None:
        told["attack"] = {"name": experiment.attack.name, **experiment.attack.to_config()}
    return told


class Cards:
    """The cards of a run's models; its tables are read once."""

    def __init__(self, folder: Path, experiment: Experiment, known: Outline, t: int) -> None:
        self.folder, self.experiment, self.known, self.t = folder, experiment, known, t
        self.metric = metric_of(experiment.training.metric, known.task)
        self._rows: dict[str, AllRows] = {}

    @cached_property
    def _alone(self) -> AllRows | None:
        beside = _beside(self.folder, self.experiment)
        return None if beside is None else AllRows(beside, self.metric, "personal")

    def _of(self, number: int, view: str) -> TestRows:
        if view not in self._rows:
            self._rows[view] = AllRows(self.folder, self.metric, view)
        return self._rows[view].of(number)

    def of(self, number: int | None, name: str | None, view: str | None) -> Card:
        """The card of a client's model; without a client that of the shared one, and without a view
        that of what newcomers get.
        """
        experiment, known = self.experiment, self.known
        rows = TestRows()
        if number is not None and view is not None:
            rows = self._of(number, view)
        judged = number is not None and view == experiment.method.model_views[0]
        scale = target_scale(known)
        gain = None
        if number is not None and judged and len(rows) and self._alone is not None:
            gain = gain_facts(self.metric, rows, self._alone.of(number), scale)
        tied = view is None and isinstance(experiment.method, GraphMethod)
        return Card(
            {
                "client": name,
                "view": view,
                "date": now(),
                "run": self.folder.name,
                "rounds": experiment.training.rounds,
                "round": self.t,
                "keep": experiment.training.keep,
                "data": data_facts(known, number),
                "training": method_facts(experiment),
                "score": score_facts(self.metric, rows, scale),
                "gain over Local": gain,
                "bytes": self._bytes(number),
                "versions": _versions_of(self.folder),
                "members' models inside": known.clients if tied else 0,
            }
        )

    @cached_property
    def _ledger(self) -> dict[str, NDArray[Any]] | None:
        path = self.folder / "ledger.parquet"
        if not path.is_file():
            return None
        table = pq.read_table(path, columns=["client", "up", "down"])
        return {name: table[name].to_numpy().astype(np.int64) for name in table.column_names}

    def _bytes(self, number: int | None) -> dict[str, int] | None:
        if self._ledger is None:
            return None
        up, down, client = (self._ledger[name] for name in ("up", "down", "client"))
        told = {"up of all": int(up.sum()), "down of all": int(down.sum())}
        if number is not None:
            mine = client == number
            told |= {"up": int(up[mine].sum()), "down": int(down[mine].sum())}
        return told


def target_scale(known: Outline) -> float:
    """How many of the target's units one unit of training is."""
    prepared = known.facts.get("prepared")
    return 1.0 if prepared is None else float(prepared.target_scale)
