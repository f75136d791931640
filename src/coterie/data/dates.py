"""Dates and times as numbers: from Arrow's own types, and from text that is written like dates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

DAY = 86_400.0
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
PARTS = ("days", "hour sin", "hour cos", "weekday sin", "weekday cos")
"""What a date may become: days since 1970 (measured), and its place in the day and in the week on a
circle.
"""
ORDERS = ("ymd", "dmy", "mdy", "time")
NEARLY_ALL = 0.95
"""Text is taken for dates if at least this share of its values can be read as such."""

_CLOCK = r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2}(?:[.,]\d+)?))?\s*(?P<p>[AaPp]\.?[Mm]\.?)?"
_TAIL = rf"(?:(?:[T ]|, ?){_CLOCK})?\s*(?P<z>Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?\s*$"
_NAME = r"[A-Za-z]{3,9}\.?"
_PATTERNS = {
    "ymd": [rf"^\s*(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}}|{_NAME})[-/.](?P<d>\d{{1,2}}){_TAIL}"],
    "dmy": [
        rf"^\s*(?P<d>\d{{1,2}})[-/.](?P<m>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TAIL}",
        rf"^\s*(?P<d>\d{{1,2}})[-/. ] ?(?P<m>{_NAME})[-/., ] ?(?P<y>\d{{4}}){_TAIL}",
        rf"^\s*(?P<d>\d{{2}})[-/.](?P<m>\d{{2}})[-/.](?P<y>\d{{2}}){_TAIL}",
    ],
    "mdy": [
        rf"^\s*(?P<m>\d{{1,2}})[-/](?P<d>\d{{1,2}})[-/](?P<y>\d{{4}}){_TAIL}",
        rf"^\s*(?P<m>{_NAME})[-/ ](?P<d>\d{{1,2}})(?:, ?|[-/ ])(?P<y>\d{{4}}){_TAIL}",
        rf"^\s*(?P<m>\d{{2}})[-/](?P<d>\d{{2}})[-/](?P<y>\d{{2}}){_TAIL}",
    ],
    "time": [rf"^\s*{_CLOCK}\s*$"],
}


def is_moment(kind: pa.DataType) -> bool:
    """A date, a timestamp or a time of day."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def seconds_of(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Seconds since 1970 (UTC where a time zone is given), or since midnight; NaN where missing."""
    kind = column.type
    if pa.types.is_time(kind):
        column = column.cast(pa.time64("us"), safe=False)
    else:
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        column = column.cast(pa.timestamp("us", zone), safe=False)
    return np.asarray(column.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy()) / 1e6


def seconds_in_text(texts: pa.Array, order: str) -> NDArray[np.float64]:
    """The same of texts in an order of day, month and year; NaN where a text is not so written or
    names no day of the calendar.
    """
    from pyarrow import compute

    found = np.full(len(texts), np.nan)
    for pattern in _PATTERNS[order]:
        groups = compute.extract_regex(texts, pattern)
        hit = np.asarray(groups.is_valid())
        if hit.any():
            found[hit] = _seconds(groups.filter(pa.array(hit)), order)
    return found


def _field(groups: pa.StructArray, name: str) -> list[str] | None:
    names = [f.name for f in groups.type]
    return groups.field(names.index(name)).to_pylist() if name in names else None


def _whole(texts: list[str]) -> NDArray[np.int64]:
    return np.array([int(t) if t else 0 for t in texts], np.int64)


def _seconds(groups: pa.StructArray, order: str) -> NDArray[np.float64]:
    total = np.zeros(len(groups))
    if order != "time":
        years, days = _whole(_field(groups, "y") or []), _whole(_field(groups, "d") or [])
        years = np.where(years < 69, years + 2000, np.where(years < 100, years + 1900, years))
        months = np.array([_month(t) for t in _field(groups, "m") or []], np.int64)
        right = (months >= 1) & (months <= 12) & (days >= 1)
        month = (years - 1970) * 12 + np.where(right, months, 1) - 1
        first = month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        after = (month + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        right &= first + days <= after
        total = np.where(right, (first + days - 1) * DAY, np.nan)
    hours, minutes = _whole(_field(groups, "h") or []), _whole(_field(groups, "min") or [])
    seconds = np.array([float((t or "0").replace(",", ".")) for t in _field(groups, "s") or []])
    halves = [(t or "").lower()[:1] for t in _field(groups, "p") or []]
    late, twelve = np.array([h == "p" for h in halves]), np.array([h != "" for h in halves])
    wrong = (hours > np.where(twelve, 12, 23)) | (minutes > 59) | (seconds >= 60)
    wrong |= twelve & (hours == 0)
    hours = np.where(twelve, hours % 12 + 12 * late, hours)
    total += hours * 3600.0 + minutes * 60.0 + seconds
    zones = _field(groups, "z")
    if zones is not None:
        total -= np.array([_offset(z) for z in zones])
    return np.where(wrong, np.nan, total)


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    short = text[:3].lower()
    return MONTHS.index(short) + 1 if short in MONTHS else 0


def _offset(zone: str | None) -> float:
    if not zone or zone[0] not in "+-":
        return 0.0
    digits = zone[1:].replace(":", "")
    size = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -size if zone[0] == "-" else size


def order_of(
    known: pa.Array, name: str, day_first: bool | None, rows: NDArray[Any] | None = None
) -> str:
    """In which order the different texts of a column (and how many rows have each) name day, month
    and year: "" if they are no dates. An order that the texts leave open is refused, unless
    `day_first` says which it is.
    """
    if not len(known):
        return ""
    share = {
        order: float(np.average(np.isfinite(seconds_in_text(known, order)), weights=rows))
        for order in ORDERS
    }
    best = max(share, key=lambda order: share[order])
    if share[best] < NEARLY_ALL:
        return ""
    if best in ("ymd", "time") or share["dmy"] != share["mdy"]:
        return best
    if day_first is None:
        example = known[0].as_py()
        raise InvalidInput(
            f"the feature column {name!r} holds dates such as {example!r}, whose first number may"
            " be the day or the month; say day_first = true or false, or leave the column out with"
            " drop."
        )
    return "dmy" if day_first else "mdy"


def parts_of(seconds: NDArray[np.float64], *, clock_only: bool) -> tuple[str, ...]:
    """Which numbers a column of moments becomes: its place in the day or in the week only where
    that varies.
    """
    there = seconds[np.isfinite(seconds)]
    parts: list[str] = [] if clock_only else ["days"]
    if clock_only or len(np.unique(there % DAY)) > 1:
        parts += ["hour sin", "hour cos"]
    if not clock_only and len(np.unique(there // DAY % 7)) > 1:
        parts += ["weekday sin", "weekday cos"]
    return tuple(parts)


def numbers_of_moments(seconds: NDArray[np.float64], parts: Any) -> NDArray[np.float64]:
    """The parts side by side; NaN where there is no moment."""
    made = np.empty((len(seconds), len(parts)))
    for i, part in enumerate(parts):
        if part == "days":
            made[:, i] = seconds / DAY
            continue
        unit, _, wave = part.partition(" ")
        # 1 January 1970 was a Thursday: Monday is 0.
        turn = seconds / DAY % 1 if unit == "hour" else (np.floor(seconds / DAY) + 3) % 7 / 7
        made[:, i] = (np.sin if wave == "sin" else np.cos)(2 * np.pi * turn)
    return made
