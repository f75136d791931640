"""What was done to each column of a table, one line each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation
from coterie.data.kinds import Column
from coterie.data.prepared import Prepared

NAMES = {
    "number": "number",
    "boolean": "true/false",
    "category": "category",
    "date": "date",
    "list": "list of numbers",
}
ORDERS = {
    "": "",
    "ymd": " (year, month, day)",
    "dmy": " (day, month, year)",
    "mdy": " (month, day, year)",
    "time": " (time of day)",
}
SHOWN = 5


class Line(NamedTuple):
    """A column of the table, what it is taken for, and what became of it."""

    column: str
    taken_for: str
    what: str


def explain(federation: Federation) -> list[Line]:
    """A line for the client column, the target, every input and every column that is left out.

    >>> from coterie.data import from_table
    >>> rows = {"site": ["a", "b"] * 8, "on": ["yes", "no"] * 8, "label": ["x", "y"] * 8}
    >>> for line in explain(from_table(rows, client="site", target="label")):
    ...     print(*line, sep=" | ")
    site | client | 2 clients
    label | target | 2 classes: x, y
    on | true/false | 0 or 1
    """
    facts = federation.facts
    prepared = facts.get("prepared")
    if not isinstance(prepared, Prepared):
        raise InvalidInput(
            f"{federation.name!r} was not read from a table of your own, so there are no columns to"
            " explain."
        )
    clients = f"{federation.clients:,} client{'s' if federation.clients != 1 else ''}"
    lines = [Line(prepared.client, "client", clients)]
    lines.append(Line(prepared.target, "target", _target(prepared)))
    gaps: dict[str, int] = facts.get("gaps", {})
    lines += [
        Line(how.name, NAMES[how.kind] + ORDERS[how.order], _what(how, gaps.get(how.name, 0)))
        for how in prepared.columns
    ]
    left_out: dict[str, str] = facts.get("left_out", {})
    return lines + [Line(name, "left out", why) for name, why in left_out.items()]


def _target(prepared: Prepared) -> str:
    if prepared.task == "classification":
        return f"{len(prepared.labels)} classes: {_some(prepared.labels)}"
    if (prepared.target_mean, prepared.target_scale) == (0.0, 1.0):
        return "a quantity, as it is"
    return f"a quantity, minus {prepared.target_mean:.6g}, divided by {prepared.target_scale:.6g}"


def _what(how: Column, gaps: int) -> str:
    made = {
        "number": lambda: _scaled(how, 0),
        "boolean": lambda: "0 or 1",
        "category": lambda: f"{len(how.values)} inputs of 0 or 1: {_some(how.values)}",
        "date": lambda: _date(how),
        "list": lambda: f"{how.length} inputs, {_scaled(how, 0) if how.length == 1 else _all(how)}",
    }[how.kind]()
    if not gaps:
        return made
    filled = "none of them" if how.kind == "category" else "the training mean"
    also = ", and an input that says so" if how.flagged else ""
    return f"{made}; {gaps:,} missing: {filled}{also}"


def _scaled(how: Column, place: int) -> str:
    if not how.scale:
        return "as it is"
    if np.isinf(how.scale[place]):
        return "never varies in training: 0 everywhere"
    return f"minus {how.mean[place]:.6g}, divided by {how.scale[place]:.6g}"


def _all(how: Column) -> str:
    if not how.scale:
        return "as they are"
    constant = int(np.isinf(how.scale).sum())
    never = f", {constant} of which never vary in training and are 0" if constant else ""
    return f"each minus its mean, divided by its standard deviation{never}"


def _date(how: Column) -> str:
    made = []
    if "days" in how.parts:
        i = how.parts.index("days")
        when = np.datetime64(round(how.mean[i] * 86_400), "s") if how.mean else ""
        unit = _scaled(how, i) if how.scale and np.isinf(how.scale[i]) else f"days since {when}"
        if how.scale and not np.isinf(how.scale[i]) and how.scale[i] != 1:
            unit += f", divided by {how.scale[i]:.6g}"
        made.append(unit)
    if "hour sin" in how.parts:
        made.append("place in the day (sine and cosine)")
    if "weekday sin" in how.parts:
        made.append("place in the week (sine and cosine)")
    return "; ".join(made)


def _some(values: Any) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more
