"""Lines of figures are told apart by who sees no red, no green or no blue.

Colours are seen as Machado, Oliveira and Fernandes (2009) simulate it, at full severity, and their
distance is that of CIELAB (CIE 1976). About 2.3 of it is just noticeable side by side.
"""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest
from numpy.typing import NDArray

from coterie.report.figures import COLOURS, MARKS
from coterie.runs.reproduce import PaperTable
from coterie.runs.reproduce.base import all_tables
from coterie.runs.reproduce.draw import looks

SEEN = {
    "by most": np.eye(3),
    "without red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "without green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "without blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ.sum(1)


def linear(colour: str) -> NDArray[np.float64]:
    v = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    t = TO_XYZ @ rgb / WHITE
    x, y, z = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: list[str], seen: str) -> tuple[float, str, str]:
    """The two that are the least unlike, and how much."""
    places = {c: lab(np.clip(np.array(SEEN[seen]) @ linear(c), 0, 1)) for c in colours}
    pairs = itertools.combinations(colours, 2)
    return min((float(np.linalg.norm(places[a] - places[b])), a, b) for a, b in pairs)


def of_reports(name: str) -> list[str]:
    script = (files("coterie.report") / "assets" / "charts.js").read_text(encoding="utf-8")
    listed = re.search(rf"const {name} = \[(.*?)\]", script)
    assert listed is not None
    return re.findall("#[0-9A-Fa-f]{6}", listed[1])


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("palette", ["figures", "LIGHT", "DARK"])
def test_no_two_colours_look_alike(palette: str, seen: str) -> None:
    colours = list(COLOURS) if palette == "figures" else of_reports(palette)
    assert len(set(colours)) >= 8
    assert nearest(colours, seen)[0] > 13


def test_a_pair_that_was_mistaken_is_found() -> None:
    """Of the palette that was here before."""
    assert nearest(["#0072B2", "#7A4EAB"], "without green")[0] < 3
    assert nearest(["#E69F00", "#B2A300"], "without red")[0] < 3
    assert nearest(["#E69F00", "#B2A300"], "by most")[0] > 20


def test_marks_are_as_many_as_colours() -> None:
    assert len(set(MARKS)) >= len(COLOURS)


@pytest.mark.parametrize("table", all_tables("both"), ids=lambda t: f"{t.key}-{t.protocol}")
def test_curves_of_a_paper_survive_a_grey_printer(table: PaperTable) -> None:
    """Without colours dashes and marks still tell lines apart: MOCHA, Local and Global had one mark
    in FedU's Figure 3.
    """
    for block in table.blocks if table.drawn == "curves" else ():
        seen = looks(block.lines, by_column=True)
        assert len({(look["linestyle"], look["marker"]) for look in seen}) == len(seen)
        black = [look["marker"] for look in seen if look["color"] == "#000000"]
        assert len(set(black)) == len(black)
