"""Fitted estimators as a folder: JSON for what is plain, safetensors for arrays. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coterie.core.errors import InvalidInput, shown
from coterie.core.files import digest, write_json, writing, writing_folder

FACTS, ARRAYS = "estimator.json", "estimator.safetensors"
FORMAT, VERSION = "coterie-estimator", 1
ARRAY, TEXTS, TUPLE = "$array", "$texts", "$tuple"
"""Keys that stand for what JSON does not know."""


def _plain(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """A value for JSON; arrays go to the other file, and their place is noted."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "US":
            return {TEXTS: [str(v) for v in value.tolist()]}
        if value.dtype == object:
            return {TEXTS: [_plain(v, where, arrays) for v in value.tolist()], "object": True}
        arrays[where] = np.asarray(value, order="C")
        return {ARRAY: where}
    if isinstance(value, tuple):
        return {TUPLE: [_plain(v, f"{where}/{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [_plain(v, f"{where}/{i}", arrays) for i, v in enumerate(value)]
    if isinstance(value, dict):
        return {str(k): _plain(v, f"{where}/{k}", arrays) for k, v in value.items()}
    raise InvalidInput(
        f"{where} is {shown(value)}, which cannot be saved as plain values; give names and numbers"
        " in its place."
    )


def _back(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_back(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]]
    if TEXTS in value:
        return np.array(value[TEXTS], object if value.get("object") else None)
    if TUPLE in value:
        return tuple(_back(v, arrays) for v in value[TUPLE])
    return {k: _back(v, arrays) for k, v in value.items()}


def write(estimator: Any, path: Path) -> None:
    """Parameters and all that fit found, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(estimator).__name__,
        "state": _plain(dict(vars(estimator)), "state", arrays),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_folder(path, lambda there: (there / FACTS).is_file()) as temporary:
        with writing(temporary / ARRAYS) as file:
            save_file(arrays, file)
        write_json(temporary / FACTS, facts | {"sha256": digest(temporary / ARRAYS)})


def read(name: str, path: Path) -> dict[str, Any]:
    """The attributes of the estimator in a folder; it must be of the class `name`."""
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        if facts.get("format") != FORMAT or facts.get("version") != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        if facts["class"] != name:
            raise InvalidInput(
                f"{str(path)!r} holds a {facts['class']}; load it with {facts['class']}.load."
            )
        if digest(path / ARRAYS) != facts["sha256"]:
            raise ValueError(f"{ARRAYS} was changed or damaged")
        state = _back(facts["state"], load_file(path / ARRAYS))
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
        return state
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(f"the estimator {str(path)!r} cannot be read: {why}.") from None
