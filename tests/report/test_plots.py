"""Figures for papers: every kind as a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie import InvalidInput
from coterie.coupling.graph import ring
from coterie.report import plots
from coterie.report.attacked import Cell, Grid
from coterie.report.comparison import Comparison
from coterie.report.plots import PLOTS, Wanted, plot, save
from tests.support.reports import comparison


@pytest.fixture(scope="module")
def made() -> Comparison:
    return comparison()


@pytest.mark.parametrize("name", PLOTS)
def test_every_figure_is_a_vector_graphic_and_the_same_twice(
    made: Comparison, name: str, tmp_path: Path
) -> None:
    files = [tmp_path / "a.pdf", tmp_path / "b.pdf"]
    for file in files:
        save(plot(made, name, Wanted(width=3.3), {"FedU": ring(6)}), file)
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(b"%PDF")
    assert first == second


@pytest.mark.parametrize(
    ("kind", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("eps", b"%!PS")]
)
def test_other_formats(made: Comparison, kind: str, head: bytes, tmp_path: Path) -> None:
    save(plot(made, "bytes", Wanted()), tmp_path / f"f.{kind}")
    assert (tmp_path / f"f.{kind}").read_bytes().startswith(head)


def test_curves_have_the_bands_of_their_seeds(made: Comparison) -> None:
    (axes,) = plot(made, "curves", Wanted(over="gradients")).axes
    entry = made.entries[2]
    means = 100 * np.array([o.scores[o.view].mean(1)[1:] for o in entry.outcomes])
    line = axes.lines[2]
    assert line.get_label() == "FedU"
    assert np.allclose(line.get_ydata(), means.mean(0))
    assert np.allclose(line.get_xdata(), 20 * np.arange(1, 8))
    corners = axes.collections[2].get_paths()[0].vertices[:, 1]
    assert corners.max() == pytest.approx((means.mean(0) + means.std(0, ddof=1)).max())


def test_attacks_have_a_panel_each() -> None:
    cells = {
        (label, attack, f): Cell((None if f == 0.5 else 0.9 - f,), (3 if f == 0.5 else None,))
        for label in ("Local", "FedU")
        for attack in ("sign-flip", "alie", "gaussian")
        for f in (0.0, 0.2, 0.5)
    }
    grid = Grid(
        "made", ["Local", "FedU"], ["sign-flip", "alie", "gaussian"], [0.0, 0.2, 0.5], [0], cells
    )
    figure = plots.attack_curves(grid, Wanted())
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == ["sign-flip", "alie", "gaussian"]
    assert np.allclose(shown[0].lines[0].get_ydata()[:2], [90, 70])


def test_what_is_refused(made: Comparison) -> None:
    with pytest.raises(InvalidInput, match=r"the figure is 'f.jpg', but must end with one of .pdf"):
        plots.check_file(Path("f.jpg"))
    with pytest.raises(InvalidInput, match="curve"):
        plot(made, "curve", Wanted())
    with pytest.raises(InvalidInput, match="byte"):
        Wanted(over="byte")
    with pytest.raises(InvalidInput, match="the width is 0 inches, but must be between 1 and 50"):
        Wanted(width=0)
    with pytest.raises(InvalidInput, match="none of these runs has a client graph"):
        plot(made, "graph", Wanted())
    with pytest.raises(InvalidInput, match="FedAvg"):
        plot(made, "graph", Wanted(method="FedAvg"), {"FedU": ring(6)})
