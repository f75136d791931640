"""Declared options: one line per hyper-parameter gives its default, its range, its symbol in the
paper and its help text.

The declaration is used four times: to validate, to read TOML, to print `coterie show METHOD`, and
to tell JAX which fields are traced (floats) and which are static (loop lengths, names).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from coterie.core import pytree as trees
from coterie.core import schedule
from coterie.core.errors import InvalidInput, shown, unknown

T = typing.TypeVar("T")
_written = contextvars.ContextVar("written", default=False)


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """For configs that a program wrote: earlier versions wrote every option, used or not, so one
    that is without effect was not asked for by anybody.
    """
    token = _written.set(True)
    try:
        yield
    finally:
        _written.reset(token)


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
) -> Any:
    """A dataclass field with its allowed range.

    `above` is exclusive, `low` and `high` are inclusive; floats are traced unless `static`.
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

    @property
    def traced(self) -> bool:
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


def _check_schedule(field: str, d: Declared, value: schedule.Schedule) -> None:
    """A schedule must keep to the range of its option: to the lower end in the first round and
    much later, to the upper end in the first round (`check_rounds` looks at the others). Numbers
    that JAX traces are not looked at.
    """
    numbers = [getattr(value, f.name) for f in dataclasses.fields(value)]
    if not all(isinstance(n, (int, float)) for n in numbers):
        return
    for t in (0, 1, 10**6):
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
            raise _out_of_range(field, d, value, t, now)


def _out_of_range(
    field: str, d: Declared, value: schedule.Schedule, t: int, now: float
) -> InvalidInput:
    return InvalidInput(
        f"{field} is the schedule {schedule.to_config(value)}, which is {now:g} in round {t}, but"
        f" must be {d.allowed}."
    )


def check_rounds(options: Options, rounds: int) -> None:
    """Refuse a schedule that leaves the range of its option in one of the rounds of a run.

    Only a run knows how many there are: a schedule may grow as long as it stays below the upper end
    until the last round.
    """
    for d in declared(type(options)).values():
        value = getattr(options, d.name)
        if d.high is None or not isinstance(value, schedule.Schedule):
            continue
        values = schedule.over(value, rounds)
        high = np.flatnonzero(values > d.high)
        if len(high):
            t = int(high[0])
            raise _out_of_range(f"{options.name}.{d.name}", d, value, t, float(values[t]))


class Options:
    """Base of every declared group of options (methods, data sources, models).

    Python numbers are validated on construction; arrays and tracers pass, because JAX rebuilds
    these objects while tracing.
    """

    name: typing.ClassVar[str] = ""

    def __post_init__(self) -> None:
        for d in declared(type(self)).values():
            if d.hidden:
                continue
            value = getattr(self, d.name)
            if isinstance(value, np.generic):
                value = value.item()
            if isinstance(value, (list, tuple, set, bytes, complex)):
                raise InvalidInput(
                    f"{self.name}.{d.name} is {shown(value)}, but must be {d.allowed}."
                )
            if value is None or isinstance(value, (bool, int, float, str, dict, schedule.Schedule)):
                object.__setattr__(self, d.name, check(self.name, d, value))
        self.validate()

    def validate(self) -> None:
        """Rules between several options; called with tracers too, so check only what is static."""

    def unused(self) -> dict[str, str]:
        """The options that others leave without effect, each with the reason, as in
        `{"batch_size": 'training.sampling is "full"'}`.

        Who gives one of these is refused; `to_config` leaves them out. Called with tracers too.
        """
        return {}

    def _refuse(self, given: typing.Iterable[str]) -> None:
        """Refuse what somebody gave and would be ignored, or is no value at all."""
        allowed = self.public()
        for key in given:
            value = getattr(self, key)
            if key in allowed and not _is_value(allowed[key], value):
                check(self.name, allowed[key], value)
        reasons = {} if _written.get() else self.unused()
        for key in given:
            if key in reasons and getattr(self, key) is not None:
                raise InvalidInput(
                    f"{self.name}.{key} is {shown(getattr(self, key))}, but {reasons[key]}, so it"
                    " would be ignored; leave one of the two out."
                )

    def replace(self, **changes: Any) -> typing.Self:
        """A copy with some options changed."""
        for key in changes:
            if key not in declared(type(self)):
                raise unknown(f"the option of {self.name},", key, self.public())
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def public(cls) -> dict[str, Declared]:
        return {k: d for k, d in declared(cls).items() if not d.hidden}

    @classmethod
    def from_config(cls, given: dict[str, Any]) -> typing.Self:
        """Build from TOML values; a misspelt key is refused with the nearest name."""
        allowed = cls.public()
        if not isinstance(given, dict):
            raise InvalidInput(
                f"the options of {cls.name} are {shown(given)}, but must be a table of names and"
                " values."
            )
        for key in given:
            if key not in allowed:
                raise unknown(f"the option of {cls.name},", key, allowed)
        missing = [
            k for k, d in allowed.items() if d.default is dataclasses.MISSING and k not in given
        ]
        if missing:
            raise InvalidInput(
                f"{cls.name} lacks the option {missing[0]!r}, which must be"
                f" {allowed[missing[0]].allowed}."
            )
        made = cls(**given)
        made._refuse(given)
        return made

    def to_config(self) -> dict[str, Any]:
        """Plain values, for TOML and JSON; options that are None or without effect are left out."""
        unused = self.unused()
        values = {k: schedule.to_config(getattr(self, k)) for k in self.public()}
        return {k: v for k, v in values.items() if v is not None and k not in unused}


def _is_value(d: Declared, value: Any) -> bool:
    """Whether this may stand in an option: a plain value, or a number that JAX traces."""
    if value is None or isinstance(value, (bool, int, float, str, schedule.Schedule, *d.kinds)):
        return True
    return d.traced and isinstance(value, (jax.Array, np.ndarray, np.generic))


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def traced_dataclass(cls: type[T]) -> type[T]:
    """Make an Options class a frozen dataclass whose float (and hidden) fields JAX traces and whose
    other fields, and the class, are static.
    """
    made: Any = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = declared(made)
    plain = made.__init__

    @functools.wraps(plain)
    def init(self: Any, **given: Any) -> None:
        plain(self, **given)
        if len(given) < len(fields):  # else a copy, or JAX: nobody spells out every option
            self._refuse(given)

    made.__init__ = init
    return trees.register(
        made,
        [k for k, d in fields.items() if d.traced],
        [k for k, d in fields.items() if not d.traced],
    )


def registered(registry: dict[str, Any], name: str, **facts: Any) -> Callable[[Any], Any]:
    """A decorator that makes an Options class (see `traced_dataclass`) known under a name; its
    summary is the first paragraph of its docstring.
    """

    def register(cls: Any) -> Any:
        if name in registry and registry[name].__module__ != cls.__module__:
            raise InvalidInput(
                f"the name {name!r} is taken by {registry[name].__module__}; choose another."
            )
        first = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
        cls.name, cls.summary = name, " ".join(first.split())
        for key, value in facts.items():
            setattr(cls, key, value)
        registry[name] = made = traced_dataclass(cls)
        return made

    return register


def chosen(registry: dict[str, Any], what: str, name: str, options: dict[str, Any] | None) -> Any:
    """What is registered under a name, with its options from plain values."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is {shown(name)}, but must be a name (a string).")
    if name not in registry:
        raise unknown(what, name, registry)
    return registry[name].from_config({} if options is None else options)
