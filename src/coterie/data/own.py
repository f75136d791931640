"""The sources "table" and "folder": your own data as options of a config or the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from coterie.core.options import option
from coterie.data.base import Source, source
from coterie.data.columns import MISSING
from coterie.data.federation import Federation
from coterie.data.kinds import MOST_CATEGORIES
from coterie.data.partition import downsample
from coterie.data.tables import FORMAT, from_folder, from_table
from coterie.data.targets import CASES


def _names(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Source):
    """What tables and folders have in common, as options of a config or the command line."""

    path: str = option(help="where the data lies")
    target: str = option(help="the column to predict")
    drop: str | None = option(None, "columns to leave out, separated by commas")
    task: str | None = option(
        None, "override what the target's type says", choices=("classification", "regression")
    )
    missing: str = option(
        "fill",
        "missing values: fill numbers with the training mean and say so in an input of its own,"
        " only the mean, or refuse them",
        choices=MISSING,
    )
    keep: str | None = option(
        None, "columns to use although they look like names or numbers of rows, by commas"
    )
    day_first: bool | None = option(
        None, "dates such as 03/04/2024: true for day/month, false for month/day"
    )
    separator: str | None = option(None, "what separates the columns of a CSV file")
    decimal: str | None = option(None, "the decimal sign of a CSV file", choices=(".", ","))
    encoding: str | None = option(None, "the encoding of a CSV file, e.g. utf-16")
    sheet: str | None = option(None, "the sheet of an Excel workbook")
    standardise: bool = option(
        True, "zero mean and unit variance of numeric inputs, fitted on training data"
    )
    standardise_target: bool = option(False, "regression: the same for the target")
    most_categories: int = option(
        MOST_CATEGORIES, "the most different values of a text column that become categories", low=1
    )
    label_case: str | None = option(
        None, "labels that differ in case only: one class, or several", choices=CASES
    )
    validation: float = option(
        0.1, "share of each client's rows for validation", low=0, high=0.9, static=True
    )
    test: float = option(
        0.25, "share of each client's rows for testing", low=0, high=0.9, static=True
    )
    downsample: float = option(
        1.0,
        "share of its training rows that a down-sampled client keeps (1: no down-sampling)",
        above=0,
        high=1,
        static=True,
    )
    downsample_clients: float = option(
        0.5, "share of the clients that are down-sampled", low=0, high=1, static=True
    )

    def _arguments(self, seed: int) -> dict[str, Any]:
        kept = (
            "target",
            "task",
            "missing",
            "standardise",
            "standardise_target",
            "most_categories",
            "label_case",
            "validation",
            "test",
            "day_first",
            *FORMAT,
        )
        names = {"drop": _names(self.drop), "keep": _names(self.keep)}
        return {key: getattr(self, key) for key in kept} | names | {"seed": seed}

    def _finish(self, made: Federation, seed: int) -> Federation:
        return (
            downsample(made, self.downsample, self.downsample_clients, seed)
            if self.downsample < 1
            else made
        )


@source("table")
class Table(Own):
    """Your own table (Parquet, CSV, Excel, npz) with a column that names the client of each row."""

    client: str = option(help="the column that says whose row it is")

    def load(self, seed: int) -> Federation:
        return self._finish(
            from_table(self.path, client=self.client, **self._arguments(seed)), seed
        )


@source("folder")
class Folder(Own):
    """Your own folder with one sub-folder, or one table file, per client."""

    def load(self, seed: int) -> Federation:
        return self._finish(from_folder(self.path, **self._arguments(seed)), seed)
