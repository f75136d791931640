"""The tables of every result.md and paired.md as CSV beside them.

python experiments/tables_to_csv.py            # writes result.csv, paired.csv

One line per cell: where it stands (the headings above the table, the number of the table and of the
row in it, the row's first cell, the column), its text as it is in the table, and where the text is
a number or "number ± number" also these. Nothing is computed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("heading", "table", "row", "label", "column", "text", "number", "spread")
NUMBER = r"[+−-]?\d[\d,]*(?:\.\d+)?"
CELL = re.compile(rf"({NUMBER})%?(?: ± ({NUMBER}))?")


def plain(number: str | None) -> str:
    return "" if number is None else number.replace(",", "").replace("−", "-")


def cells(text: str) -> Iterator[tuple[str | int, ...]]:
    """The cells of the tables in a page, in order."""
    headings: dict[int, str] = {}
    head: list[str] | None = None
    table = row = 0
    for line in text.splitlines():
        if found := re.match(r"(#+) (.*)", line):
            headings = {k: v for k, v in headings.items() if k < len(found[1])}
            headings[len(found[1])] = found[2]
        if not line.startswith("|"):
            head = None
            continue
        entries = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head is None:
            head, table, row = entries, table + 1, -1  # the line of dashes is row 0
            continue
        row += 1
        if row == 0:
            continue
        for column, entry in zip(head, entries, strict=True):
            number = CELL.fullmatch(entry)
            mean, spread = (plain(number[1]), plain(number[2])) if number else ("", "")
            heading = " / ".join(headings[k] for k in sorted(headings))
            yield heading, table, row, entries[0], column, entry, mean, spread


def as_csv(page: Path) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(cells(page.read_text(encoding="utf-8")))
    return out.getvalue()


def pages() -> list[Path]:
    """All but those of `coterie reproduce`, which writes a result.csv of its own."""
    found = sorted([*HERE.glob("**/result.md"), *HERE.glob("**/paired.md")])
    return [page for page in found if "`coterie reproduce" not in page.read_text(encoding="utf-8")]


if __name__ == "__main__":
    for page in pages():
        page.with_suffix(".csv").write_text(as_csv(page), encoding="utf-8")
        print(page.with_suffix(".csv").relative_to(HERE))
