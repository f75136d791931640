"""The section [tune] of an experiment."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from coterie.core.errors import InvalidInput, unknown
from coterie.core.options import Options, option, traced_dataclass
from coterie.runs.tuning.spaces import PRESETS, Spaces, read_search, write_search

SAMPLERS = ("tpe", "random", "grid")


@traced_dataclass
class TuneOptions(Options):
    """How methods are tuned: on validation data only, with the same budget for each."""

    name: ClassVar[str] = "tune"

    steps: int | None = option(
        None,
        "gradient steps per client that all trials of a method may take together, the same for"
        " every method; nothing, and no minutes: those of 16 runs of the method that takes most",
        low=1,
    )
    minutes: float | None = option(
        None,
        "time for all methods together, shared equally, instead of steps; compiling is not counted",
        above=0,
        static=True,
    )
    trials: int | None = option(
        None,
        "the most trials of a method, also where its steps or minutes would pay for more; those"
        " that were dropped count",
        low=1,
    )
    sampler: str = option("tpe", "how values are chosen", choices=SAMPLERS)
    folds: int | None = option(
        None,
        "cross-validation within each client: its training and validation rows are cut into so many"
        " folds; nothing: the validation rows of the data",
        low=2,
    )
    runs: int = option(1, "training runs of each trial, with seeds that no report uses", low=1)
    width: int = option(8, "trials side by side in one compiled program", low=1)
    prune: bool | None = option(
        None,
        "drop the worse half of a batch of trials after a quarter and after half of the rounds;"
        " nothing: except with a grid, and with less than a minute for each method",
    )
    whole: bool = option(
        False, "also search whole numbers such as local_steps; each value compiles a program"
    )
    decay: bool = option(
        False, "let the step sizes that are searched go to 0 over a run, along a cosine"
    )
    preset: str | None = option(
        None, "the grids of a paper in the place of the search spaces", choices=tuple(PRESETS)
    )


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The whole section: its options, and search spaces by method (`[tune.search.fedu]`)."""

    options: TuneOptions = dataclasses.field(default_factory=lambda: TuneOptions())
    search: dict[str, Spaces] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_config(cls, given: Any) -> Tuning:
        if not isinstance(given, dict):
            raise InvalidInput(f"tune is {given!r}, but must be a table.")
        plain = {k: v for k, v in given.items() if k != "search"}
        options = TuneOptions.from_config(plain)
        if options.steps is not None and options.minutes is not None:
            raise InvalidInput(
                f"tune.steps is {options.steps} and tune.minutes {options.minutes:g}, but there is"
                " one budget; give one of them."
            )
        search = read_search(given.get("search", {}))
        return cls(options, search)

    def to_config(self) -> dict[str, Any]:
        search = {"search": write_search(self.search)} if self.search else {}
        return {**self.options.to_config(), **search}

    @property
    def spaces(self) -> dict[str, Spaces]:
        """What is searched in the place of what options declare."""
        if self.options.preset is None:
            return self.search
        if self.options.preset not in PRESETS:
            raise unknown("the preset", self.options.preset, PRESETS)
        return {**read_search(PRESETS[self.options.preset]), **self.search}

    def searching(self, spaces: dict[str, Spaces]) -> Tuning:
        return dataclasses.replace(self, search=spaces)
