"""What a wrong word on the command line is told: one sentence that names the nearest right one, or
what is allowed.
"""

from __future__ import annotations

import re
from typing import Any

from coterie.core.errors import nearest


def sentence(error: Any) -> str:
    """The sentence for an error of the library that reads the command line."""
    told = str(error.format_message()).strip()
    context: Any = getattr(error, "ctx", None)
    command = getattr(context, "command", None)
    wrong = getattr(error, "option_name", None)
    if wrong is not None and command is not None:
        known = [name for p in command.params for name in (*p.opts, *p.secondary_opts)]
        long = [name for name in known if name.startswith("--")]
        hint = nearest(str(wrong), long) or f"; `{context.command_path} --help` lists them."
        return f"the option {wrong!r} of `{context.command_path}` is unknown{hint}"
    missing = re.match(r"No such command '(.*?)'", told)
    if missing and command is not None:
        known = [name for name, one in command.commands.items() if not one.hidden]
        hint = nearest(missing[1], known) or f"; `{context.command_path} --help` lists them."
        return f"the command {missing[1]!r} of `{context.command_path}` is unknown{hint}"
    number = re.match(
        r"Invalid value for '(.*?)'(?: / '.*?')?: '?(.*?)'? is not (?:in|a valid)", told
    )
    kind = getattr(getattr(error, "param", None), "type", None)
    if number and re.match("integer|float", str(getattr(kind, "name", ""))):
        return f"{number[1]} is {number[2]}, but must be {_allowed(kind)}."
    return told


def _allowed(kind: Any) -> str:
    """A kind of numbers in words."""
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    bounds = [f"{sign} {bound:g}" for sign, bound in (("≥", low), ("≤", high)) if bound is not None]
    noun = "a whole number" if str(kind.name).startswith("integer") else "a number"
    return " ".join([noun, *[" and ".join(bounds)] * bool(bounds)])
