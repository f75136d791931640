"""`--json`: a command's result as one JSON document on standard output, for scripts.

Whatever is said on the way (progress, remarks, tables) goes to standard error then.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from coterie.cli.console import err, out

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="The result as one JSON document; all else goes to standard error.",
        show_default=False,
    ),
]


def beside(as_json: bool) -> Console:
    """Where people are told: standard error while standard output belongs to a document."""
    return err if as_json else out


def print_json(value: Any) -> None:
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """What JSON can hold: paths as text, arrays as lists, what is not finite as null.

    >>> plain({"score": np.float32(0.5), "loss": float("nan"), "file": Path("a/b"), 3: (1, 2)})
    {'score': 0.5, 'loss': None, 'file': 'a/b', '3': [1, 2]}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.bool_):
        return bool(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    return str(value)


def rows_of(table: Table) -> list[dict[str, str]]:
    """A table for people, as texts by the names of its columns."""
    heads = [str(column.header) for column in table.columns]
    cells = zip(*(column.cells for column in table.columns), strict=True)
    return [dict(zip(heads, map(str, row), strict=True)) for row in cells]
