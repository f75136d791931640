"""Numbers of bytes as people write them."""

from __future__ import annotations

from coterie.core.errors import InvalidInput


def parse_bytes(text: str) -> float:
    """A number of bytes with or without a unit.

    >>> parse_bytes("1500"), parse_bytes("2 MB"), parse_bytes("0.5kB")
    (1500.0, 2000000.0, 500.0)
    """
    units = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
    plain = text.strip().lower()
    number = plain.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = plain[len(number) :].strip()
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidInput(
            f"the number of bytes is {text!r}, but must be > 0, like 1500, 20kB, 3MB or 1GB."
        )
    return value
