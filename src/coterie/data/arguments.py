"""What people give for a federation, checked in one sentence."""

from __future__ import annotations

from typing import Any

from coterie.core.errors import InvalidInput, shown
from coterie.data.federation import Federation


def as_federation(value: Any) -> Federation:
    """A Federation; what might become one is told how."""
    if isinstance(value, Federation):
        return value
    hint = ""
    if isinstance(value, str):
        hint = f"; load one by its name with coterie.load({shown(value)})"
    elif hasattr(value, "columns"):
        hint = "; make one of a table with coterie.from_table"
    elif isinstance(value, (list, tuple, dict)) or hasattr(value, "shape"):
        hint = "; make one of arrays with coterie.from_arrays"
    raise InvalidInput(f"the federation is {shown(value)}, but must be a Federation{hint}.")


def as_seed(value: Any) -> int:
    """A whole number ≥ 0."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not is_scalar(value):
        raise InvalidInput(f"the seed is {shown(value)}, but must be a whole number ≥ 0.")
    if int(value) < 0:
        raise InvalidInput(f"the seed is {int(value)}, but must be a whole number ≥ 0.")
    return int(value)


def is_scalar(value: Any) -> bool:
    """Not an array that holds one number by chance."""
    return getattr(value, "shape", ()) == ()
