"""The numbers of the lp-proj paper, as it prints them: `tables/*.csv`.

lp-proj.csv has a number a line; lp-proj-attacks.csv a line of a table, "accuracy (variance)" in
every cell. The copy of the paper at hand is damaged in Table 4, Synthetic(1, 1): numbers of Ditto,
pFedMe and Local, and all but the accuracies of Per-FedAvg and FedAvg, cannot be read there and are
left out.
"""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from functools import cache
from importlib.resources import files

from coterie.runs.reproduce.base import NEVER, PERCENT, Printed

BYZANTINE = ("0%", "10%", "20%", "50%", "80%")
POISONED = ("0%", "2%", "5%", "10%", "20%")


def _rows(name: str) -> list[list[str]]:
    text = files("coterie.runs.reproduce").joinpath("tables", name).read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines()))[1:]


def percent(text: str) -> str:
    """A share in per cent, digit for digit.

    >>> percent("0.8569 ± 0.0012"), percent("9.822E-01"), percent("★")
    ('85.69 ± 0.12', '98.22', '★')
    """
    if Printed.read(text) is None or text == NEVER:
        return text
    return " ± ".join(f"{Decimal(part).scaleb(2):f}" for part in text.split(" ± "))


@cache
def numbers(table: str, block: str) -> dict[str, dict[str, str]]:
    """What Table `table` prints of a block: by method and measure."""
    found: dict[str, dict[str, str]] = {}
    for of, part, method, measure, text in _rows("lp-proj.csv"):
        if (of, part) == (table, block):
            found.setdefault(method, {})[measure] = percent(text) if measure in PERCENT else text
    return found


@cache
def attacked(table: str, block: str) -> dict[str, list[tuple[str, str]]]:
    """What a table of attacks prints of a block: by method, accuracy in per cent and variance for
    every share of malicious clients.
    """
    found = {}
    for of, part, method, *cells in _rows("lp-proj-attacks.csv"):
        if (of, part) == (table, block):
            pairs = [re.fullmatch(r"(\S+) \((\S+)\)", cell) for cell in cells]
            found[method] = [(percent(p[1]), p[2]) for p in pairs if p is not None]
    return found
