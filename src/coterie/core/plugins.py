"""Code of one's own that makes methods, channels, attacks, data sets, models or metrics known by
name: a Python file (`--import mine.py`), or an installed package with an entry point.

A package names a module that registers things when it is imported:

[project.entry-points."coterie.plugins"]
mine = "my_package.methods"

Nothing is imported because a config says so: a config that somebody sends is data, not code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path

from coterie.core.errors import CoterieError, InvalidInput

GROUP = "coterie.plugins"


@dataclasses.dataclass(frozen=True)
class Imported:
    """A file that was imported, as it was then."""

    path: Path
    sha256: str


_files: dict[Path, Imported] = {}
_installed: dict[str, str] = {}


def imported() -> list[Imported]:
    """The files that were imported, in their order."""
    return list(_files.values())


def installed() -> dict[str, str]:
    """The entry points that were loaded, by name, each with the version of its package."""
    return dict(_installed)


def load(files: Iterable[Path], say: Callable[[str], None] = print) -> None:
    """All installed plug-ins, then these files; what was loaded before is not loaded again."""
    for entry in entry_points(group=GROUP):
        if entry.name in _installed:
            continue
        try:
            entry.load()
        except Exception as error:  # somebody else's code
            say(f"the plug-in {entry.name!r} ({entry.value}) is left out: {_text_of(error)}.")
            continue
        _installed[entry.name] = entry.dist.version if entry.dist else ""
    for path in files:
        load_file(path)


def load_file(path: Path) -> None:
    """Run a Python file that registers something. Modules that lie beside it can be imported."""
    file = path.resolve()
    if file in _files:
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"--import is {str(path)!r}, which cannot be read: {error.strerror or error}."
        ) from None
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"coterie_import_{sha256[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if file.suffix != ".py" or spec is None or spec.loader is None:
        raise InvalidInput(f"--import is {str(path)!r}, but must be a Python file (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except CoterieError as error:
        del sys.modules[name]
        raise InvalidInput(f"--import {str(path)!r} failed: {error}") from None
    except Exception as error:  # the user's own code
        del sys.modules[name]
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)
        ]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        where = f" in line {line}" if line else ""
        raise InvalidInput(f"--import {str(path)!r} failed{where}: {_text_of(error)}.") from None
    _files[file] = Imported(file, sha256)


def _text_of(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
