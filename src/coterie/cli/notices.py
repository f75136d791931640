"""What Python shows as a warning, the command line prints as one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TextIO

from coterie.core.errors import Notice


def print_notices(say: Callable[[str], None]) -> None:
    """From now on each `Notice` is said once; other warnings are shown as before."""
    shown: set[str] = set()
    others = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, Notice):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in shown:
            shown.add(str(message))
            say(str(message))

    warnings.simplefilter("always", Notice)
    warnings.showwarning = show
