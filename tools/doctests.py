"""An extension of Griffe, which reads docstrings for the reference: their examples become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^[ \t]*>>> .*\n(?:[ \t]*\S.*\n?)*\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    """The docstring with its `>>>` lines, and what they print, in a fence."""
    return EXAMPLE.sub(lambda m: f"```pycon\n{m[0].strip()}\n```\n", text + "\n").strip()


class Doctests(griffe.Extension):  # type: ignore[misc]
    """Fences around doctests."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
