"""New files to begin with: an experiment, a method with its test, a deployment. What is written
works as it is, and is meant to be changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import numpy as np

from coterie.core.errors import InvalidInput
from coterie.core.files import write_text

NAME = re.compile(r"[a-z][a-z0-9-]*")
SITES = ("site-a", "site-b", "site-c")
PORT = 9092
ROWS = 60
"""Made-up rows of each client."""


def _text(template: str, words: Mapping[str, str]) -> str:
    text = (resources.files("coterie.runs") / "scaffolds" / template).read_text(encoding="utf-8")
    for key, value in words.items():
        text = text.replace(f"@{key}@", value)
    return text


def _write(files: Mapping[Path, str]) -> list[Path]:
    """All of them, or none: what is there is never overwritten."""
    for path in files:
        if path.exists():
            raise InvalidInput(f"{str(path)!r} is there already; choose another name.")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise InvalidInput(f"{str(path.parent)!r} cannot be made: {why}.") from None
        write_text(path, text)
    return list(files)


def _ends(path: Path, suffix: str) -> Path:
    if path.suffix not in ("", suffix):
        raise InvalidInput(f"the file is {str(path)!r}, but must end in {suffix}.")
    return path.with_suffix(suffix)


def _name(text: str, what: str) -> str:
    if not NAME.fullmatch(text):
        raise InvalidInput(
            f"{what} is {text!r}, but must be of small letters, digits and dashes, and begin with a"
            " letter."
        )
    return text


def new_experiment(path: Path) -> list[Path]:
    """A TOML file for `run`, `compare`, `tune`, `check` and `attack`."""
    path = _ends(path, ".toml")
    return _write({path: _text("experiment.toml", {"FILE": str(path)})})


def new_method(path: Path) -> list[Path]:
    """A Python file with a method that has the file's name, and a test of it beside."""
    from coterie.methods import METHODS

    path = _ends(path, ".py")
    name = _name(path.stem.replace("_", "-"), "the method's name")
    if name in METHODS:
        raise InvalidInput(f"there is a method {name!r} already; choose another name.")
    module = name.replace("-", "_")
    title = name[0].upper() + name[1:]
    file, test = path.with_name(f"{module}.py"), path.with_name(f"test_{module}.py")
    words = {
        "NAME": name,
        "TITLE": title,
        "MODULE": module,
        "CLASS": "".join(part.capitalize() for part in name.split("-")),
        "FILE": str(file),
        "TEST": str(test),
    }
    return _write({file: _text("method.txt", words), test: _text("test_method.txt", words)})


def new_deployment(folder: Path) -> list[Path]:
    """A folder with a plan, a folder for each of three clients, and a script that runs it here."""
    name = _name(folder.resolve().name, "the federation's name")
    words = {
        "NAME": name,
        "CLIENTS": ", ".join(f'"{site}"' for site in SITES),
        "SITES": " ".join(SITES),
        "PORT": str(PORT),
    }
    files = {folder / "plan.toml": _text("plan.toml", words)}
    for k, site in enumerate(SITES):
        files[folder / site / "site.toml"] = _text("site.toml", {**words, "SITE": site})
        files[folder / site / "rows.csv"] = _rows(k)
    script = folder / "run-here.sh"
    files[script] = _text("run-here.txt", words)
    written = _write(files)
    script.chmod(0o755)
    return written


def _rows(client: int) -> str:
    """Made-up rows: hotter and more loaded machines fail, at a threshold of each client's own."""
    rng = np.random.default_rng([client, 0x5CAF])
    heat, load = rng.normal(20, 5, ROWS), rng.uniform(0, 1, ROWS)
    fails = heat + 10 * load + rng.normal(0, 1, ROWS) > 24 + client
    lines = [
        f"{h:.2f},{v:.3f},{'yes' if f else 'no'}" for h, v, f in zip(heat, load, fails, strict=True)
    ]
    return "\n".join(["heat,load,fails", *lines]) + "\n"
