"""A data set as people name it on a command line: `mnist clients=20 split=labels`, or the path of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.data.base import SOURCES, get_source
from coterie.data.federation import Federation
from coterie.errors import InvalidInput


def parse_value(text: str) -> bool | int | float | str | None:
    """true/false, a whole number, a number, none, or else text.

    >>> [parse_value(t) for t in ("true", "20", "0.5", "labels", "1e-3")]
    [True, 20, 0.5, 'labels', 0.001]
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """`["clients=20", "split=labels"]` as a dictionary; dashes in names may stand for underscores."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InvalidInput(f"the option {pair!r} is not of the form key=value.")
        options[key.strip().replace("-", "_")] = parse_value(value.strip())
    return options


def load_named(name: str, pairs: Sequence[str], seed: int) -> Federation:
    """The federation of a data set's name, or of the path of a table or folder, with options given as key=value."""
    options = parse_options(pairs)
    path = Path(name).expanduser()
    if name not in SOURCES and path.exists():
        # Text options stay text even if they look like numbers (a column may be called "1").
        kind = "folder" if path.is_dir() else "table"
        options = {k: str(v) if k in ("client", "target", "drop") else v for k, v in options.items()}
        return get_source(kind, {"path": name, **options}).load(seed)
    return get_source(name, options).load(seed)
