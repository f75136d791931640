"""The JSON form of LEAF, in which FEMNIST and Shakespeare are published by client: `users`, and for
each of them in `user_data` the lists `x` and `y`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from coterie.data.files import Published, corrupt, missing, read_bytes, roots

PLACES = ("", "train", "test", "data/train", "data/test", "all_data", "data/all_data")
"""Where below a set's folder its JSON files may lie."""


def leaf_files(published: Published, data_dir: str | None) -> list[Path]:
    """The JSON files of the first folder that holds any."""
    for root in roots(data_dir):
        own = ("",) if data_dir and root == Path(data_dir).expanduser() else ()
        for folder in (root / name for name in (*published.folders, *own)):
            found = [
                path
                for place in PLACES
                for path in sorted((folder / place).glob("*.json*"))
                if path.name.endswith((".json", ".json.gz"))
            ]
            if found:
                return found
    return []


def absent(published: Published, data_dir: str | None) -> Exception:
    """The sentence that says what to put where."""
    return missing(published, data_dir, "its authors publish a script, and no files to download")


def read_users(paths: Iterable[Path]) -> Iterator[tuple[Path, str, list[Any], list[Any]]]:
    """(file, user, x, y), one user of one file after the other."""
    for path in paths:
        try:
            whole = json.loads(read_bytes(path))
            users, data = whole["users"], whole["user_data"]
            for user in users:
                x, y = data[user]["x"], data[user]["y"]
                if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
                    raise corrupt(path, f"the x and y of {user!r} are not lists of one length")
                yield path, str(user), x, y
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ValueError) and "is corrupt" in str(error):
                raise
            raise corrupt(path, "it is not of LEAF's form (users, user_data)") from None
