"""What a table or figure of a paper is: blocks, each an experiment, with a line for every number or
curve.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple

from coterie.core.errors import InvalidInput, unknown
from coterie.methods.base import METHODS
from coterie.runs.experiment import Experiment
from coterie.runs.tuning.batch import predicted_steps
from coterie.runs.tuning.spaces import PRESETS, Spaces, read_search, write_search
from coterie.runs.tuning.tune import asked_experiment, tuning_seeds

Config = dict[str, Any]
QUICK = 40
"""With --quick a run has so many times fewer rounds, and 3 at least."""
TRIALS = 6
"""Runs, shortened by TUNED, for which a method's budget of tuning is enough."""
MOST = 24
"""Trials that a method has at the most. The budget is of gradient steps, and where a tenth of the
clients take part in a round it would pay for a hundred trials of a method that trains only those.
"""
TUNED = 5
"""Runs while tuning have so many times fewer rounds, unless a block says otherwise."""
FOLDS = 2
"""Parts of a client's training rows; each is once what a trial is judged by."""
NEVER = "★"
"""What lp-proj's tables have where a method gives no solution."""

ACCURACY, VARIANCE = "accuracy", "accuracy variance"
TRAIN_LOSS, TRAIN_VARIANCE = "train loss", "train loss variance"
LOSS, LOSS_VARIANCE = "test loss", "test loss variance"
AT_BUDGET, TO_TARGET = "accuracy at the budget", "bytes to the target"
COLLABORATION, BEHIND = "correlation with Local", "points behind the first"
PERCENT = (ACCURACY, AT_BUDGET, BEHIND)
"""What is given in per cent."""
MEASURES = (
    *(ACCURACY, VARIANCE, TRAIN_LOSS, TRAIN_VARIANCE, LOSS, LOSS_VARIANCE),
    *(AT_BUDGET, TO_TARGET, COLLABORATION, BEHIND),
)


class Printed(NamedTuple):
    """A number as a paper printed it; NaN where it says that there was no solution."""

    mean: float
    spread: float | None = None
    half: float = 0.0
    """Half a unit of the last digit: how exactly it is known."""

    @classmethod
    def read(cls, text: str) -> Printed | None:
        """
        >>> Printed.read("99.10 ± 0.18")
        Printed(mean=99.1, spread=0.18, half=0.005)
        >>> Printed.read("4.027E-03").mean, Printed.read("★").mean
        (0.004027, nan)
        >>> Printed.read("")
        """
        if text == NEVER:
            return cls(float("nan"))
        number = r"\d[\d.]*(?:E[+-]\d+)?"
        found = re.fullmatch(rf"({number})(?: ± ({number}))?", text)
        if found is None:
            return None
        last = Decimal(found[1]).as_tuple().exponent
        half = 0.5 * 10.0 ** int(last)
        return cls(float(found[1]), None if found[2] is None else float(found[2]), half)


@cache
def _budget(config: str, trials: int) -> int:
    """Gradient steps per client that every method may take while it is tuned."""
    asked = asked_experiment(Experiment.from_config(json.loads(config)))
    problem = asked.problem(tuning_seeds(asked.reported))
    taken = max(predicted_steps(c.method, problem) for c in asked.contenders)
    return max(1, round(trials * taken))


@dataclasses.dataclass(frozen=True)
class Line:
    """A method of a block, and the paper's numbers."""

    label: str
    """As the paper calls it."""
    method: Config
    paper: str = ""
    """The accuracy in per cent, as the paper prints it; nothing: it is not in the paper."""
    view: str | None = None
    """The models that are scored, where a method has several kinds; nothing: the first."""
    tuned: bool = False
    """Whether its step sizes and strengths are found by tuning; they are the paper's, or those of
    its code, otherwise.
    """
    fixed: tuple[str, ...] = ()
    """Options that are not tuned although others are, since the paper names them."""
    more: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other measures, as the paper prints them."""
    column: str = ""
    """The column of a table with several (10% malicious), the point of a sweep (η = 0.1)."""
    x: float | None = None
    """Its place on the axis of a figure."""
    changes: Config = dataclasses.field(default_factory=dict)
    """Options that are set after tuning, so that the method is tuned once for all its lines."""
    training: Config = dataclasses.field(default_factory=dict)
    """Options of training that are not those of the block."""
    attack: Config | None = None
    """Who lies, and how; scores are then those of honest clients."""

    @property
    def name(self) -> str:
        return f"{self.label}, {self.column}" if self.column else self.label

    @property
    def printed(self) -> dict[str, str]:
        """What the paper has, by measure."""
        return {**({ACCURACY: self.paper} if self.paper else {}), **self.more}


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a table, or a panel of a figure, that one experiment stands behind."""

    name: str
    title: str
    experiment: Config
    """data, model, graph, training and resplit."""
    lines: tuple[Line, ...]
    differs: str = ""
    """What is not as in the paper."""
    tuned_with: tuple[Line, ...] = ()
    """Lines of another table of the same block: all are tuned together, once for both tables."""
    alone: bool = True
    """Whether Local stands beside every line with its number of gradients."""
    budget: float | None = None
    """Numbers sent, of which `accuracy at the budget` is."""
    target: float | None = None
    """The accuracy of `bytes to the target`."""
    long: bool = False
    """Whether it takes hours; `reproduce all` leaves it out then, unless it is asked for."""
    shorter: int = TUNED
    """Runs while tuning have so many times fewer rounds."""
    preset: str | None = None
    """The grids of a paper that are searched (`coterie tune`); nothing: what options declare."""
    seeds: int | None = None
    """Seeds per cell, where they are not the table's."""
    trials: int | None = TRIALS
    """Runs, shortened, for which a method's budget of tuning is enough; nothing: the whole grid."""

    def settings(self, seeds: int, *, quick: bool = False) -> Config:
        """The experiment without methods; with one seed and few rounds if it is to be quick."""
        config = {**self.experiment, "name": self.title, "seeds": list(range(seeds))}
        training = dict(config["training"])
        if quick:
            training["rounds"] = rounds = max(3, training["rounds"] // QUICK)
            training["eval_every"] = min(training.get("eval_every", 10), rounds)
            config["seeds"] = [0]
        return {**config, "training": training}

    def methods(self) -> list[Config]:
        """Every method once, before tuning: several lines may look at the same one."""
        found: list[Config] = []
        for line in (*self.tuned_with, *self.lines):
            if line.method not in found:
                found.append(line.method)
        return found

    def tuned_methods(self) -> list[Config]:
        tuned = [line.method for line in (*self.tuned_with, *self.lines) if line.tuned]
        return [method for method in self.methods() if method in tuned]

    def tuning(self) -> Experiment | None:
        """The experiment that finds values for the lines that are tuned, all with the same budget:
        shorter runs, on folds of the training rows.
        """
        methods = self.tuned_methods()
        if not methods:
            return None
        config = self.settings(1)
        rounds = max(3, config["training"]["rounds"] // self.shorter)
        training = {**config["training"], "rounds": rounds, "eval_every": rounds}
        training.pop("train_metrics", None)
        tune: Config = {"search": self.search()}
        tune |= {"folds": FOLDS} if self.preset is None else self._grid
        made = {**config, "name": "reproduce", "training": training, "methods": methods}
        if self.trials is not None:
            tune["steps"] = _budget(json.dumps({**made, "tune": tune}), self.trials)
            tune["trials"] = MOST
        return Experiment.from_config({**made, "tune": tune})

    @property
    def _grid(self) -> Config:
        """A paper's grids are searched as papers do: point by point, on the validation rows."""
        return {"preset": self.preset, "sampler": "grid"}

    def search(self) -> Config:
        """What is searched for methods that have values of the paper: the other options."""
        found: Config = {}
        for line in (*self.tuned_with, *self.lines):
            name = line.method["name"]
            if line.tuned and line.fixed:
                spaces = {o: s for o, s in self._declared(name).items() if o not in line.fixed}
                found |= write_search({name: spaces})
        return found

    def searched(self, line: Line) -> set[str]:
        """The options of a line that tuning may set."""
        return set(self._declared(line.method["name"])) - set(line.fixed) if line.tuned else set()

    def _declared(self, name: str) -> Spaces:
        """What is searched for a method: the preset's grids, or what its options declare."""
        if self.preset is not None:
            return read_search(PRESETS[self.preset]).get(name, {})
        public = METHODS[name].public().items()
        return {o: d.search for o, d in public if d.search is not None and d.traced and o != "l2"}


Measured = Literal["last", "by samples", "best", "after 20"]
Drawing = Literal["dots", "curves", "sweep", "plane", "bytes"]
Protocol = Literal["honest", "paper"]


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table or a figure of a paper."""

    paper: str
    name: str
    title: str
    blocks: tuple[Block, ...]
    measured: Measured = "last"
    """What is measured: the mean over clients in the last round; the last round, or the best round
    on test data, clients counted by their test samples; or the best mean over clients after the
    20th round.
    """
    seeds: int = 3
    measures: tuple[str, ...] = (ACCURACY,)
    """What the columns are, or of a figure what is drawn."""
    drawn: Drawing = "dots"
    """Our numbers beside the paper's; curves over rounds; over the lines' x; one measure over
    another; accuracy over bytes.
    """
    axis: str = ""
    """What x is, of a sweep."""
    protocol: Protocol = "honest"

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def folder(self) -> str:
        """Where its results are."""
        return self.name if self.protocol == "honest" else f"{self.name}-{self.protocol}"

    def without_long(self) -> PaperTable:
        """Without the blocks that take hours."""
        short = tuple(block for block in self.blocks if not block.long)
        return dataclasses.replace(self, blocks=short)


TABLES: dict[str, PaperTable] = {}
"""All that can be reproduced, by "paper/table", under the protocol "honest"."""
AS_PUBLISHED: dict[str, PaperTable] = {}
"""The same under the protocol "paper", where that differs."""
PROTOCOLS = ("honest", "paper", "both")


def known(*tables: PaperTable) -> None:
    """Add tables of a paper."""
    for table in tables:
        (TABLES if table.protocol == "honest" else AS_PUBLISHED)[table.key] = table


def table_of(key: str, protocol: str = "honest") -> PaperTable:
    _all_papers()
    if key not in TABLES:
        raise unknown("the table", key, TABLES)
    if protocol == "paper" and key not in AS_PUBLISHED:
        raise InvalidInput(
            f"--protocol is 'paper', but {key} has no other protocol than 'honest'; those that have"
            f" are {', '.join(AS_PUBLISHED)}."
        )
    return (TABLES if protocol == "honest" else AS_PUBLISHED)[key]


def all_tables(protocol: str = "honest") -> list[PaperTable]:
    """Those of a protocol, or of both."""
    _all_papers()
    chosen = {"honest": (TABLES,), "paper": (AS_PUBLISHED,), "both": (TABLES, AS_PUBLISHED)}
    return [table for each in chosen[protocol] for table in each.values()]


def _all_papers() -> None:
    from coterie.runs.reproduce import papers  # noqa: F401 - they add their tables
