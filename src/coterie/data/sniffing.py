"""How a text file of a table is written: its encoding, what separates columns, what decimals look
like. Found in its first bytes, unless the user says it.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import re
from collections.abc import Sequence
from pathlib import Path

from coterie.core.errors import InvalidInput, notice, shown
from coterie.data.files import BROKEN

HEAD = 1 << 18
"""Bytes that are looked at."""
LINES = 200
SEPARATORS = {",": "comma-separated", ";": ";-separated", "\t": "tab-separated", "|": "|-separated"}
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
THOUSANDS_POINT = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+(?:,\d+)?")


@dataclasses.dataclass(frozen=True)
class Format:
    """What the user says of a file; None where it is to be found out."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    """Of an Excel workbook."""

    def __post_init__(self) -> None:
        if self.separator is not None and (
            not isinstance(self.separator, str) or len(self.separator.replace("\\t", "\t")) != 1
        ):
            raise InvalidInput(
                f"separator is {shown(self.separator)}, but must be one character, such as ';' or"
                " '\\t'."
            )
        if self.decimal not in (None, ".", ","):
            raise InvalidInput(f"decimal is {shown(self.decimal)}, but must be '.' or ','.")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except (LookupError, TypeError):
                raise InvalidInput(
                    f"encoding is {shown(self.encoding)}, but must be one that Python knows, such"
                    " as 'utf-8', 'utf-16' or 'latin-1'."
                ) from None


@dataclasses.dataclass(frozen=True)
class Sniffed:
    """How a text file is written."""

    separator: str
    decimal: str
    encoding: str
    packed: bool
    """gzip"""
    skip: int
    """Lines before the header: Excel writes "sep=;" there."""
    header: list[str]
    newlines: bool
    """Whether a quoted cell holds a line break."""
    said: tuple[str, ...]
    """What was found out and is not usual."""

    def say(self, path: Path, also: Sequence[str] = ()) -> None:
        found = [*self.said, *also]
        if found:
            notice(
                f"the table {path.name!r} looks {', '.join(found)} and is read so; the options"
                " separator, decimal and encoding say otherwise."
            )


def sniff(path: Path, given: Format, wanted: Sequence[str] = ()) -> Sniffed:
    """Look at the beginning of a file. `wanted` are columns that it should have."""
    usual = "\t" if ".tsv" in path.name.lower() else ","
    packed, head = _head(path)
    said = []
    if packed and not path.name.lower().endswith(".gz"):
        said.append("gzip-compressed")
    encoding = given.encoding or _encoding(head)
    if given.encoding is None and encoding != "utf-8":
        said.append(f"like {_title(encoding)}")
    try:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(head).lstrip("\ufeff")
    except UnicodeError:
        raise not_in(path, encoding) from None
    whole = len(head) < HEAD
    skip, separator = 0, given.separator and given.separator.replace("\\t", "\t")
    told = re.match(r"\"?sep=(.)\"?\r?\n", text, re.IGNORECASE)
    if told:
        skip, text = 1, text[told.end() :]
        separator = separator or told[1]
    if separator is None:
        separator = _separator(text, whole, usual, wanted)
        if separator != usual:
            said.append(SEPARATORS[separator])
    rows = _rows(text, separator, whole)
    decimal = given.decimal
    if decimal is None:
        decimal = "," if separator != "," and _commas(rows[1:]) else "."
        if decimal == ",":
            said.append("with decimal commas")
    if decimal == separator:
        raise InvalidInput(
            f"decimal and separator are both {decimal!r} for {path.name!r}; they must be two."
        )
    newlines = any("\n" in cell or "\r" in cell for row in rows for cell in row)
    header = rows[0] if rows else []
    return Sniffed(separator, decimal, encoding, packed, skip, header, newlines, tuple(said))


def not_in(path: Path, encoding: str) -> InvalidInput:
    return InvalidInput(
        f"the table {str(path)!r} is not written in {encoding}; the option encoding says what it"
        " is."
    )


def _head(path: Path) -> tuple[bool, bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            return packed, file.read(HEAD)
    except BROKEN as error:
        raise InvalidInput(f"the table {str(path)!r} cannot be read: {error}.") from None


def _title(encoding: str) -> str:
    return {"cp1252": "Latin-1 (cp1252)"}.get(encoding, encoding.upper())


def _encoding(head: bytes) -> str:
    for mark, name in BOMS:
        if head.startswith(mark):
            return name
    # UTF-16 without a mark: no other text has bytes of 0, and its Latin letters have one each.
    if b"\0" in head[:256]:
        return "utf-16-le" if head[1:256:2].count(0) > head[:256:2].count(0) else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The first lines as cells; the last one may be cut short and is left out."""
    lines = text.splitlines(keepends=True)
    if not whole:
        lines = lines[:-1]
    csv.field_size_limit(HEAD)
    try:
        rows = [row for row in csv.reader(lines[:LINES], delimiter=separator) if row]
    except csv.Error:
        return []
    return rows if whole and len(lines) <= LINES else rows[:-1] or rows


def _separator(text: str, whole: bool, usual: str, wanted: Sequence[str]) -> str:
    """The character that cuts all lines into as many cells as the header; the usual one if it
    does.
    """
    best, most = usual, (-1, -1.0, False, -1)
    for candidate in SEPARATORS:
        rows = _rows(text, candidate, whole)
        if not rows or len(rows[0]) < 2:
            continue
        header = [cell.strip() for cell in rows[0]]
        alike = sum(len(row) == len(header) for row in rows) / len(rows)
        found = sum(name in header for name in wanted)
        score = (found, alike, candidate == usual, len(header))
        if score > most:
            best, most = candidate, score
    return best


def _commas(rows: Sequence[Sequence[str]]) -> bool:
    """Whether numbers have decimal commas; a point may then stand between thousands only."""
    cells = [cell.strip() for row in rows for cell in row]
    points = [c for c in cells if DECIMAL_POINT.fullmatch(c)]
    return any(
        DECIMAL_COMMA.fullmatch(c) or ("," in c and THOUSANDS_POINT.fullmatch(c)) for c in cells
    ) and all(THOUSANDS_POINT.fullmatch(c) for c in points)
