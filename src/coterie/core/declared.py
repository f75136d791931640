"""The declaration of one option: its default, its range, its symbol in the paper, its help text;
and the check of a value against it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from typing import Any

from coterie.core import schedule
from coterie.core.errors import InvalidInput, shown, unknown
from coterie.core.search import Space, ends


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    symbol: str = "",
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    static: bool = False,
    search: Space | None = None,
    read: Callable[[str, Any], Any] | None = None,
) -> Any:
    """A dataclass field with its allowed range.

    `above` is exclusive, `low` and `high` are inclusive; floats are traced unless `static`.
    `search` is where `coterie tune` looks for a good value; None: it leaves the option alone.
    `read(field, value)` is for options that are objects with options of their own: it makes one
    from a name, a table or whatever else may stand there. `choices` are the names then.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "symbol": symbol,
            "above": above,
            "low": low,
            "high": high,
            "choices": choices,
            "static": static,
            "search": search,
            "read": read,
        },
    )


def hidden(default: Any = None) -> Any:
    """A field that holds arrays the engine fills in (a drawn projection); users never set it,
    configs never show it.
    """
    return dataclasses.field(default=default, metadata={"hidden": True}, repr=False)


@dataclasses.dataclass(frozen=True)
class Declared:
    """What is known of one option."""

    name: str
    kinds: tuple[type, ...]
    default: Any
    help: str
    symbol: str
    above: float | None
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    hidden: bool
    static: bool
    search: Space | None = None
    read: Callable[[str, Any], Any] | None = None

    @property
    def traced(self) -> bool:
        if self.read is not None:
            return True
        return self.hidden or (float in self.kinds and not self.static)

    @property
    def schedulable(self) -> bool:
        """True for options declared as Number: a value per round may be given."""
        return schedule.Schedule in self.kinds

    @property
    def optional(self) -> bool:
        return type(None) in self.kinds

    @property
    def allowed(self) -> str:
        """What the option accepts, in words."""
        if self.choices:
            base = "one of " + ", ".join(map(repr, self.choices))
            if self.read is not None:
                base += ", a table of such a name and its options,"
        elif bool in self.kinds:
            base = "true or false"
        elif float in self.kinds or int in self.kinds:
            noun = "number" if float in self.kinds else "whole number"
            bounds = []
            if self.above is not None:
                bounds.append(f"> {self.above:g}")
            if self.low is not None:
                bounds.append(f"≥ {self.low:g}")
            if self.high is not None:
                bounds.append(f"≤ {self.high:g}")
            base = f"a {noun}" + (" " + " and ".join(bounds) if bounds else "")
        else:
            base = "a string" if str in self.kinds else "a value"
        if (
            isinstance(self.default, str)
            and self.choices is None
            and str in self.kinds
            and int in self.kinds
        ):
            base += f" or {self.default!r}"
        return base + (" or nothing" if self.optional else "")


def declared(cls: type) -> dict[str, Declared]:
    """The options of a dataclass, by name."""
    cached = cls.__dict__.get("_declared_options")
    if cached is not None:
        return typing.cast(dict[str, Declared], cached)
    hints = typing.get_type_hints(cls)
    out = {}
    for f in dataclasses.fields(cls):
        if f.name.startswith("_"):
            continue
        hint = hints[f.name]
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = tuple(
            a for a in (typing.get_args(hint) if union else (hint,)) if isinstance(a, type)
        )
        m = f.metadata
        out[f.name] = Declared(
            name=f.name,
            kinds=kinds,
            default=f.default,
            help=m.get("help", ""),
            symbol=m.get("symbol", ""),
            above=m.get("above"),
            low=m.get("low"),
            high=m.get("high"),
            choices=m.get("choices"),
            hidden=m.get("hidden", False),
            static=m.get("static", False),
            search=m.get("search"),
            read=m.get("read"),
        )
    cls._declared_options = out  # type: ignore[attr-defined]
    return out


def check(owner: str, d: Declared, value: Any) -> Any:
    """Return the value, converted where that is safe (1 → 1.0), or raise one sentence."""
    field = f"{owner}.{d.name}" if owner else d.name
    bad = InvalidInput(f"{field} is {shown(value)}, but must be {d.allowed}.")
    if value is None:
        if d.optional:
            return None
        raise bad
    if d.read is not None:
        return d.read(field, value)
    if isinstance(value, dict) and d.schedulable:
        value = schedule.from_config(field, value)
    if isinstance(value, schedule.Schedule):
        if not d.schedulable:
            raise bad
        _check_schedule(field, d, value)
        return value
    if isinstance(value, str):
        if d.choices is not None:
            if value not in d.choices:
                raise unknown(f"{field},", value, d.choices)
            return value
        if str not in d.kinds or (int in d.kinds and value != d.default):
            raise bad
        return value
    if isinstance(value, bool):
        if bool in d.kinds:
            return value
        raise bad
    if isinstance(value, (int, float)):
        if float in d.kinds:
            value = float(value)
        elif int in d.kinds:
            if value != int(value) if math.isfinite(value) else True:
                raise bad
            value = int(value)
        else:
            raise bad
        if (
            not math.isfinite(value)
            or (d.above is not None and not value > d.above)
            or (d.low is not None and value < d.low)
            or (d.high is not None and value > d.high)
        ):
            raise bad
        return value
    if isinstance(value, d.kinds):
        return value
    raise bad


def check_search(owner: str, d: Declared, space: Space) -> None:
    """Refuse a search space that leaves the range of its option."""
    for value in ends(space):
        check(owner, d, value)


def _check_schedule(field: str, d: Declared, value: schedule.Schedule) -> None:
    """A schedule must keep to the range of its option: to the lower end in the first round and
    in its last, to the upper end in the first round (`check_rounds` looks at the others). Numbers
    that JAX traces are not looked at.
    """
    numbers = [getattr(value, f.name) for f in dataclasses.fields(value)]
    if not all(isinstance(n, (int, float)) for n in numbers):
        return
    for t in (0, min(1, value.last), value.last):
        try:
            now = float(value(t))
        except ZeroDivisionError:
            now = math.inf
        if (
            not math.isfinite(now)
            or (d.above is not None and not now > d.above)
            or (d.low is not None and now < d.low)
            or (d.high is not None and now > d.high and t == 0)
        ):
            raise out_of_range(field, d, value, t, now)


def out_of_range(
    field: str, d: Declared, value: schedule.Schedule, t: int, now: float
) -> InvalidInput:
    return InvalidInput(
        f"{field} is the schedule {schedule.to_config(value)}, which is {now:g} in round {t}, but"
        f" must be {d.allowed}."
    )
