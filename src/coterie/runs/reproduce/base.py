"""What a table of a paper is: blocks, each an experiment, with a line for every number."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, NamedTuple

from coterie.core.errors import unknown
from coterie.methods.base import METHODS
from coterie.runs.experiment import Experiment
from coterie.runs.tuning.batch import predicted_steps
from coterie.runs.tuning.spaces import write_search
from coterie.runs.tuning.tune import asked_experiment, tuning_seeds

Config = dict[str, Any]
QUICK = 40
"""With --quick a run has so many times fewer rounds, and 3 at least."""
TRIALS = 6
"""Runs, shortened by TUNED, for which a method's budget of tuning is enough."""
TUNED = 5
"""Runs while tuning have so many times fewer rounds."""
FOLDS = 2
"""Parts of a client's training rows; each is once what a trial is judged by."""


class Printed(NamedTuple):
    """A number as a paper printed it, in per cent."""

    mean: float
    spread: float | None

    @classmethod
    def read(cls, text: str) -> Printed | None:
        """
        >>> Printed.read("99.10 ± 0.18")
        Printed(mean=99.1, spread=0.18)
        >>> Printed.read("")
        """
        found = re.fullmatch(r"([\d.]+)(?: ± ([\d.]+))?", text)
        if found is None:
            return None
        return cls(float(found[1]), None if found[2] is None else float(found[2]))


@dataclasses.dataclass(frozen=True)
class Line:
    """A method of a block, and the paper's number."""

    label: str
    """As the paper calls it."""
    method: Config
    paper: str = ""
    """As the paper prints it; nothing: it is not in the paper."""
    view: str | None = None
    """The models that are scored, where a method has several kinds; nothing: the first."""
    tuned: bool = False
    """Whether its step sizes and strengths are found by tuning; they are the paper's, or those of
    its code, otherwise.
    """
    fixed: tuple[str, ...] = ()
    """Options that are not tuned although others are, since the paper names them."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a table that one experiment stands behind."""

    name: str
    title: str
    experiment: Config
    """data, model, graph, training and resplit."""
    lines: tuple[Line, ...]
    differs: str = ""
    """What is not as in the paper."""

    def settings(self, seeds: int, *, quick: bool = False) -> Config:
        """The experiment without methods; with one seed and few rounds if it is to be quick."""
        config = {**self.experiment, "name": self.title, "seeds": list(range(seeds))}
        training = dict(config["training"])
        if quick:
            training["rounds"] = max(3, training["rounds"] // QUICK)
            training["eval_every"] = training["rounds"]
            config["seeds"] = [0]
        return {**config, "training": training}

    def methods(self) -> list[Config]:
        """Every method once: several lines may look at the same one."""
        found: list[Config] = []
        for line in self.lines:
            if line.method not in found:
                found.append(line.method)
        return found

    def tuned_methods(self) -> list[Config]:
        tuned = [line.method for line in self.lines if line.tuned]
        return [method for method in self.methods() if method in tuned]

    def tuning(self, seeds: int) -> Experiment | None:
        """The experiment that finds values for the lines that are tuned, all with the same budget:
        shorter runs, on folds of the training rows.
        """
        methods = self.tuned_methods()
        if not methods:
            return None
        config = self.settings(seeds)
        training = config["training"]
        rounds = max(3, training["rounds"] // TUNED)
        training = {**training, "rounds": rounds, "eval_every": rounds}
        folds = {"folds": FOLDS, "search": self.search()}
        made = {**config, "training": training, "methods": methods}
        asked = asked_experiment(Experiment.from_config({**made, "tune": folds}))
        problem = asked.problem(tuning_seeds(asked.reported))
        taken = max(predicted_steps(c.method, problem) for c in asked.contenders)
        tune = {**folds, "steps": max(1, round(TRIALS * taken))}
        return Experiment.from_config({**made, "tune": tune})

    def search(self) -> Config:
        """What is searched for methods that have values of the paper: the other options."""
        found: Config = {}
        for line in self.lines:
            name, public = line.method["name"], METHODS[line.method["name"]].public()
            if line.tuned and line.fixed:
                spaces = {
                    option: d.search
                    for option, d in public.items()
                    if d.search is not None and d.traced and option not in (*line.fixed, "l2")
                }
                found |= write_search({name: spaces})
        return found


Measured = Literal["best", "last"]


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of a paper."""

    paper: str
    name: str
    title: str
    blocks: tuple[Block, ...]
    measured: Measured = "last"
    """What the paper measures: the mean over clients in the last round, or the best round on test
    data, clients counted by their test samples.
    """
    seeds: int = 3

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"


TABLES: dict[str, PaperTable] = {}
"""All that can be reproduced, by "paper/table"."""


def known(*tables: PaperTable) -> None:
    """Add tables of a paper."""
    TABLES.update({table.key: table for table in tables})


def table_of(key: str) -> PaperTable:
    _all_papers()
    if key not in TABLES:
        raise unknown("the table", key, TABLES)
    return TABLES[key]


def all_tables() -> list[PaperTable]:
    _all_papers()
    return list(TABLES.values())


def _all_papers() -> None:
    from coterie.runs.reproduce import fedu, lpproj, pfedme  # noqa: F401 - they add their tables
