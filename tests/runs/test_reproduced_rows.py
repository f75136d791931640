"""Cells of the papers' tables: verdicts, order, the file that has them, and the summary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie.runs.reproduce.base import ACCURACY, TO_TARGET, VARIANCE, table_of
from coterie.runs.reproduce.result import order
from coterie.runs.reproduce.rows import Row, read_csv, table_csv
from coterie.runs.reproduce.summary import summary, write_summary


def row(label: str, paper: str, *ours: float, measure: str = ACCURACY) -> Row:
    return Row("a-block", label, "", measure, paper, list(ours))


NONE = float("nan")
HEAD = "| table | block | method | measure | paper | ours | verdict |"


def test_verdicts_and_order() -> None:
    near = row("a", "90.0 ± 0.3", 90.2, 90.8)  # 0.5 away; 2·√(0.3² + 0.42²) = 1.04
    far = row("b", "89.0 ± 0.1", 91.0, 91.1)
    assert near.verdict == "within 2 std"
    assert far.verdict == "outside, +2.05"
    assert row("c", "", 1.0).verdict == ""
    noise = row("c", "90.0 ± 0.3", 20.0, 80.0)  # 40 away, and 2 deviations are 85
    assert noise.verdict == "open, -40.00 but within 2 std"
    assert row("c", "90.0", 88.0, 93.0).verdict == "within 2 std"  # 0.5 away
    assert row("c", "90.0", 90.04).verdict == "within 2 std"  # 90.0 may be 90.049
    assert row("c", "90.0", 90.06).verdict == "outside, +0.06"
    assert row("c", "★", NONE).verdict == "none, as in the paper"
    assert row("c", "★", 12.0).verdict == "outside, the paper has none"
    assert row("c", "12.0", NONE).verdict == "outside, never"
    assert row("c", "4620", 9240.0, measure=TO_TARGET).verdict == "outside, 2 times"
    assert order([near, far]) == (
        "The order has changed: b > a; in the paper a > b. Of 1 pairs 1 changed places, none of"
        " them by more than 2 deviations."
    )
    ahead = row("b", "89.0 ± 0.1", 91.0, 91.5)  # 0.8 and 0.7 ahead
    assert "1 of them by more than 2 deviations: b is before a." in order([near, ahead])
    same = row("c", "90.0 ± 0.3", 90.9, 90.9)
    assert "The order of methods is the paper's" in order([near, same]), "c and a share a number"
    assert order([near]) == ""


def test_a_cell_in_which_seeds_collapsed_is_not_met_and_not_first() -> None:
    broken = row("a", "90.0 ± 0.3", NONE, 90.1)._replace(collapsed="1 of 2 seeds collapsed")
    whole = row("b", "89.0 ± 0.1", 80.0, 80.0)
    assert broken.verdict == "outside, 1 of 2 seeds collapsed"
    assert "b > a; in the paper a > b" in order([broken, whole])
    assert row("c", "4620", NONE, 4620.0).verdict == "outside, 1 of 2 seeds never"


def test_two_readings_of_a_method_have_one_place_in_the_paper() -> None:
    def verdicts(*rows: Row) -> dict[str, str]:
        lines = summary([(table_of("fedu/table-4"), rows)])
        cells = [line.split(" | ") for line in lines[lines.index(HEAD) + 2 :]]
        return {cell[2]: cell[-1].rstrip(" |") for cell in cells}

    sampled, every = "FedU (neighbours sampled)", "FedU (all neighbours)"
    found = verdicts(row(sampled, "97.0", 97.0), row(every, "97.0", 95.0), row("b", "96.0", 96.0))
    assert found == {
        sampled: "within 2 std",
        every: "outside, -2.00; place 1 in the paper, 2 here",
        "b": "within 2 std",  # the second of two, not of three
    }
    told = order([row(sampled, "97.0", 95.0), row(every, "97.0", 95.0), row("b", "96.0", 96.0)])
    assert "in the paper FedU > b. Of 2 pairs" in told


def test_results_can_be_read_again() -> None:
    collapsed = row("b", "★", NONE, 3.0)._replace(collapsed="1 of 2 seeds collapsed at round 7")
    rows = [row("a", "90.0 ± 0.3", 90.2, 90.8), collapsed]
    again = read_csv(table_csv(rows))
    assert again[0] == rows[0]
    assert np.isnan(again[1].ours[0])
    assert again[1].collapsed == collapsed.collapsed


def test_the_summary_is_written_between_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Mine\n\nBy hand.\n")
    folder = tmp_path / "fedu" / "table-3"
    folder.mkdir(parents=True)
    rows = [row("FedU", "99.10 ± 0.18", 99.0, 99.1), row("Local", "98.29 ± 0.01", 99.2, 99.3)]
    (folder / "result.csv").write_text(table_csv([*rows, row("FedAvg", "", 95.0)]))
    write_summary(tmp_path)
    readme.write_text(f"{readme.read_text()}\nAfter.\n")
    path, cells = write_summary(tmp_path)
    text = path.read_text()
    assert cells == 2
    assert text.startswith("# Mine\n\nBy hand.\n")
    assert text.endswith("After.\n")
    assert text.count("| FedU | accuracy | 99.10 ± 0.18 | 99.05 ± 0.07 | within 2 std; place") == 1
    assert "outside, +0.96; place 2 in the paper, 1 here" in text
    assert "2 cells: 1 within 2 standard deviations" in text
    assert (
        text.count("| [fedu/table-3](fedu/table-3/result.md) | a-block | 1 of 2 | 1 of 2 | ") == 1
    )


def test_the_overview_counts_what_agrees() -> None:
    rows = [
        row("a", "90.0 ± 0.3", 90.2, 90.8),
        row("b", "80.0 ± 0.3", 91.2, 91.8),
        row("b", "★", NONE)._replace(measure=VARIANCE, collapsed="collapsed at round 7"),
        row("c", "", 12.0),
    ]
    told = "| [lp-proj/table-7](lp-proj/table-7/result.md) | a-block | 2 of 3 | 1 of 2 | 2 |"
    assert told in summary([(table_of("lp-proj/table-7"), rows), (table_of("fedu/table-3"), [])])
