"""Numbers for people."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """1234567 → '1.2 MB'.

    >>> bytes_text(0), bytes_text(999), bytes_text(1234567)
    ('0 B', '999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
