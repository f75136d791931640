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
import typing
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from coterie.core import pytree as trees
from coterie.core import schedule
from coterie.core.declared import Declared, check, declared, hidden, option, out_of_range
from coterie.core.errors import InvalidInput, shown, unknown

__all__ = [
    "Declared",
    "Options",
    "as_written",
    "check_rounds",
    "chosen",
    "declared",
    "hidden",
    "option",
    "registered",
    "traced_dataclass",
]
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


def check_rounds(options: Options, rounds: int) -> None:
    """Refuse a schedule that leaves the range of its option in one of the rounds of a run.

    Only a run knows how many there are: a schedule may grow as long as it stays below the upper end
    until the last round, or reach 0 after it.
    """
    for d in declared(type(options)).values():
        value = getattr(options, d.name)
        if not isinstance(value, schedule.Schedule):
            continue
        values = schedule.over(value, rounds)
        high = math.inf if d.high is None else d.high
        low = -math.inf if d.low is None else d.low
        above = -math.inf if d.above is None else d.above
        wrong = np.flatnonzero((values > high) | (values < low) | (values <= above))
        if len(wrong):
            t = int(wrong[0])
            raise out_of_range(f"{options.name}.{d.name}", d, value, t, float(values[t]))


class Options:
    """Base of every declared group of options (methods, data sources, models).

    Python numbers are validated on construction; arrays and tracers pass, because JAX rebuilds
    these objects while tracing.
    """

    name: typing.ClassVar[str] = ""
    renamed: typing.ClassVar[dict[str, str]] = {}
    """Options of earlier versions: old name → new name."""
    renamed_values: typing.ClassVar[dict[str, dict[str, str]]] = {}
    """Choices of earlier versions, by option: old value → new value."""

    def __post_init__(self) -> None:
        for d in declared(type(self)).values():
            if d.hidden:
                continue
            value = getattr(self, d.name)
            if d.read is not None:  # an object with options of its own
                object.__setattr__(self, d.name, check(self.name, d, value))
                continue
            if isinstance(value, str) and value in self.renamed_values.get(d.name, {}):
                now = self.renamed_values[d.name][value]
                raise InvalidInput(
                    f"{self.name}.{d.name} is {value!r}, which is called {now!r} now."
                )
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
            if key in cls.renamed:
                raise InvalidInput(f"{cls.name}.{key} is called {cls.name}.{cls.renamed[key]} now.")
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
        values = {k: _plain(getattr(self, k)) for k in self.public()}
        return {k: v for k, v in values.items() if v is not None and k not in unused}


def _plain(value: Any) -> Any:
    """An option's value for TOML and JSON; an object with options of its own as a table."""
    if isinstance(value, Options):
        return {"name": value.name, **value.to_config()}
    return schedule.to_config(value)


def _is_value(d: Declared, value: Any) -> bool:
    """Whether this may stand in an option: a plain value, or a number that JAX traces."""
    if d.read is not None:
        return True  # `read` made it
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


def by_name(registry: dict[str, Any], field: str, value: Any) -> Any:
    """What is registered under a name, given as the name or as a table of the name and options;
    anything else is given back as it is.
    """
    if isinstance(value, str):
        return chosen(registry, f"{field},", value, None)
    if not isinstance(value, dict):
        return value
    options = dict(value)
    name = options.pop("name", None)
    if name is None:
        raise InvalidInput(f"{field} is {shown(value)}, but must have a name beside its options.")
    return chosen(registry, f"{field},", name, options)


def chosen(registry: dict[str, Any], what: str, name: str, options: dict[str, Any] | None) -> Any:
    """What is registered under a name, with its options from plain values."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is {shown(name)}, but must be a name (a string).")
    if name not in registry:
        raise unknown(what, name, registry)
    return registry[name].from_config({} if options is None else options)
