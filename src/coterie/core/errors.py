"""What coterie raises.

Every message is one sentence that names the field, the value and what is allowed.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Sequence


class CoterieError(Exception):
    """Anything coterie refuses or gives up on.

    The command line prints it as one sentence and exits with `exit_code`.
    """

    exit_code = 2


class InvalidInput(CoterieError, ValueError):
    """A value that the user gave is not allowed."""


class Notice(UserWarning):
    """Something that was decided for the user and that the user should know.

    Python shows it as a warning; the command line prints it as one sentence.
    """


def notice(sentence: str) -> None:
    """Say in one sentence what was decided, as a warning at the first line outside coterie."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("coterie."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, Notice, stacklevel=level)


def listed(names: Iterable[str], most: int = 3) -> str:
    """`'a', 'b' and 'c'`, or `'a', 'b', 'c' and 7 more`.

    >>> listed("ab"), listed("abcde")
    ("'a' and 'b'", "'a', 'b', 'c' and 2 more")
    """
    shown = [repr(name) for name in names]
    if len(shown) > most:
        return f"{', '.join(shown[:most])} and {len(shown) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


class Diverged(CoterieError, ArithmeticError):
    """A client's model became NaN or infinite. Carries what is needed to say where."""

    exit_code = 3

    def __init__(
        self, method: str, round_: int, clients: Sequence[int], broken: Sequence[str] = ()
    ) -> None:
        self.method, self.round, self.clients, self.broken = (
            method,
            round_,
            list(clients),
            list(broken),
        )
        shown = ", ".join(map(str, self.clients[:8])) + (
            f" and {len(self.clients) - 8} more" if len(self.clients) > 8 else ""
        )
        where = (
            f"from client{'s' if len(self.clients) != 1 else ''} {shown}"
            if self.clients
            else "in the shared model"
        )
        why = (
            f"; this step-size condition is broken: {'; '.join(self.broken)}"
            if self.broken
            else (
                "; no step-size condition that can be checked beforehand is broken, so lower the"
                " learning rate"
            )
        )
        super().__init__(f"{method} diverged in round {round_}: NaN or infinity {where}{why}.")


def shown(value: object) -> str:
    """A value for a sentence: as it is written, or what kind of thing it is when that is long.

    >>> shown(0.5), shown("fedu"), shown(int), shown([0] * 1000)
    ('0.5', "'fedu'", 'the class int', 'a list')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    if len(text) <= 60 and "\n" not in text and not text.startswith("<"):
        return text
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'pfedme'?` when one of the allowed names is close, else an empty string."""
    allowed = list(allowed)
    lowered = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


def unknown(what: str, name: object, allowed: Iterable[str]) -> InvalidInput:
    """The error for a name that is not among those allowed, with the nearest one suggested."""
    allowed = sorted(allowed)
    hint = nearest(str(name), allowed)
    return InvalidInput(
        f"{what} {name!r} is unknown{hint or '.'} Known: {', '.join(allowed) or 'none'}."
    )
