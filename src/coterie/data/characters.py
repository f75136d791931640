"""Text by its speakers: what comes after so many characters. LEAF's Shakespeare, or a folder of
your own with a text file for every client.

A sample is a row of character numbers, whole numbers that a model looks up (`lstm`, `transformer`);
its label is the number of the next character.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, notice
from coterie.core.options import option
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.federation import Federation
from coterie.data.files import Published, corrupt, read_bytes
from coterie.data.labelled import Prepared
from coterie.data.leaf import absent, leaf_files, read_users
from coterie.data.partition import natural

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters; whatever is not among them counts as a space."""
SPACE = ALPHABET.index(" ")
LENGTH = 80
SHAKESPEARE = Published(
    "Shakespeare",
    ("the JSON files that LEAF's script shakespeare/preprocess.sh makes",),
    ("shakespeare", "leaf/data/shakespeare", "leaf/shakespeare"),
    "https://leaf.cmu.edu (https://github.com/TalwalkarLab/leaf)",
)
_NUMBERS = {letter: i for i, letter in enumerate(ALPHABET)}


def numbered(text: str) -> NDArray[np.uint8]:
    """The numbers of a text's characters.

    >>> numbered("a b\\u00e9").tolist() == [_NUMBERS["a"], SPACE, _NUMBERS["b"], SPACE]
    True
    """
    return np.array([_NUMBERS.get(letter, SPACE) for letter in text], np.uint8)


def windows(text: str, length: int, step: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All rows of `length` characters, `step` apart, and the character after each."""
    numbers = numbered(text)
    if len(numbers) <= length:
        return np.zeros((0, length), np.uint8), np.zeros(0, np.uint8)
    rows = np.lib.stride_tricks.sliding_window_view(numbers, length + 1)[::step]
    return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy()


def _parse_leaf(paths: list[Path]) -> Arrays:
    rows, labels, speakers = [], [], []
    names: list[str] = []
    for path, speaker, x, y in read_users(paths):
        right = all(isinstance(t, str) and len(t) == LENGTH for t in x)
        if not right or not all(isinstance(t, str) and len(t) == 1 for t in y):
            raise corrupt(
                path,
                f"the samples of {speaker!r} are not {LENGTH} characters and the next one",
            )
        if not x:
            continue
        rows.append(numbered("".join(x)).reshape(-1, LENGTH))
        labels.append(numbered("".join(y)))
        speakers.append(np.full(len(x), len(names)))
        names.append(speaker)
    if not names:
        raise corrupt(paths[0], "it holds no text")
    return {
        "x": np.concatenate(rows),
        "y": np.concatenate(labels),
        "speaker": np.asarray(names)[np.concatenate(speakers)],
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spoken(Prepared):
    """What sets of text have in common: whole numbers in, the next character out."""

    standardise: bool = option(False, "not for text: characters are numbers that are looked up")
    least: int = option(64, "speakers with fewer samples are left out", low=1)
    most: int = option(0, "so many speakers, those with the most samples (0: all)", low=0)

    def validate(self) -> None:
        super().validate()
        for key, kept in (("standardise", False), ("hidden", 1)):
            if getattr(self, key) != kept:
                raise InvalidInput(
                    f"{self.name}.{key} is {getattr(self, key)!r}, but characters are numbers that"
                    f" are looked up; leave it out."
                )

    def spoken(self, arrays: Arrays, seed: int) -> Federation:
        owner, speakers = self.largest(*natural(arrays["speaker"]), self.least, self.most)
        made = self.assemble(
            arrays["x"],
            arrays["y"],
            owner,
            seed,
            classes=len(ALPHABET),
            facts={"labels": list(ALPHABET), "clients": speakers},
            scaling=None,
        )
        made.facts["scaling"] = "character numbers"
        return made


@source("shakespeare")
class Shakespeare(Spoken):
    """Shakespeare's plays, one client per role: 80 characters, and which comes next (LEAF)."""

    def published(self) -> Published:
        return SHAKESPEARE

    def found(self) -> Path | None:
        paths = leaf_files(SHAKESPEARE, self.data_dir)
        return paths[0].parent if paths else None

    def load(self, seed: int) -> Federation:
        paths = leaf_files(SHAKESPEARE, self.data_dir)
        if not paths:
            raise absent(SHAKESPEARE, self.data_dir)
        return self.spoken(cached("shakespeare", paths, lambda: _parse_leaf(paths)), seed)


@source("text")
class Text(Spoken):
    """Your own text: a folder with a .txt file for every client; which character comes next."""

    path: str = option(help="the folder")

    def unused(self) -> dict[str, str]:
        mine = dict.fromkeys(("data_dir", "download"), "text.path names the folder")
        return {**super().unused(), **mine}

    length: int = option(LENGTH, "characters that are seen", low=1)
    step: int = option(3, "characters between the beginnings of two samples", low=1)

    def load(self, seed: int) -> Federation:
        folder = Path(self.path).expanduser()
        files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
        if not files:
            raise InvalidInput(
                f"text.path is {self.path!r}, but must be a folder with a .txt file for every"
                " client."
            )
        parts: dict[str, Any] = {}
        for path in files:
            text = read_bytes(path).decode("utf-8", errors="replace")
            x, y = windows(text, self.length, self.step)
            if len(x) < self.least:
                notice(f"{path.name} has {len(x)} samples, fewer than {self.least}: left out.")
            else:
                parts[path.stem] = (x, y)
        if not parts:
            raise InvalidInput(
                f"no file in {self.path!r} has text.least = {self.least} samples of"
                f" {self.length} characters."
            )
        arrays = {
            "x": np.concatenate([x for x, _ in parts.values()]),
            "y": np.concatenate([y for _, y in parts.values()]),
            "speaker": np.repeat(list(parts), [len(y) for _, y in parts.values()]),
        }
        return self.spoken(arrays, seed)
