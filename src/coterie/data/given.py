"""A data set as people name it on a command line: `mnist clients=20 split=labels`, or the path of a
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.options import Declared
from coterie.data.base import SOURCES, get_source
from coterie.data.federation import Federation
from coterie.data.mapped import FACTS


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


def parse_options(
    pairs: Sequence[str], known: Mapping[str, Declared] | None = None
) -> dict[str, Any]:
    """`["clients=20", "split=labels"]` as a dictionary; dashes in names may stand for underscores.

    Options that `known` declares as text stay text even if they look like numbers: a column may be
    called "1".
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise InvalidInput(f"the option {pair!r} is not of the form key=value.")
        key = key.strip().replace("-", "_")
        text = known is not None and key in known and set(known[key].kinds) <= {str, type(None)}
        options[key] = value.strip() if text else parse_value(value.strip())
    return options


def load_named(name: str, pairs: Sequence[str], seed: int) -> Federation:
    """The federation of a data set's name, or of the path of a table or folder, with options given
    as key=value.
    """
    path = Path(name).expanduser()
    own: dict[str, Any] = {}
    if name not in SOURCES and path.exists():
        mapped = (path / FACTS).is_file()
        kind = "mapped" if mapped else "folder" if path.is_dir() else "table"
        name, own = kind, {"path": name}
    known = SOURCES[name].public() if name in SOURCES else None
    return get_source(name, own | parse_options(pairs, known)).load(seed)
