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
    return _number(told, error) or told


def _number(told: str, error: Any) -> str | None:
    """The sentence for a number that an option does not allow: typer 0.20 tells it in words of its
    own, later ones leave it to pydantic, which does not name what was given.
    """
    name = re.match(r"Invalid value for '(.*?)'", told)
    cause = getattr(error, "__cause__", None)
    if name is None:
        return None
    if cause is not None and hasattr(cause, "errors"):
        (first, *_) = cause.errors()
        whole = first["type"].startswith("int_")
        if not whole and not first["type"].startswith(("float_", "greater_", "less_")):
            return None
        low, high = (first.get("ctx", {}).get(bound) for bound in ("ge", "le"))
        return f"{name[1]} is {first['input']}, but must be {_allowed(whole, low, high)}."
    value = re.search(r"': '?(.*?)'? is not (?:in the range|a valid)", told)
    kind = getattr(getattr(error, "param", None), "type", None)
    known = str(getattr(kind, "name", ""))
    if value is None or not known.startswith(("integer", "float")):
        return None
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    return f"{name[1]} is {value[1]}, but must be {_allowed(known[0] == 'i', low, high)}."


def _allowed(whole: bool, low: float | None, high: float | None) -> str:
    """Numbers in words."""
    bounds = [f"{sign} {bound:g}" for sign, bound in (("≥", low), ("≤", high)) if bound is not None]
    noun = "a whole number" if whole else "a number"
    return f"{noun} {' and '.join(bounds)}".strip()
