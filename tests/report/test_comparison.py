"""Comparisons: who is measured against which Local, what the numbers mean, and that they can come
from memory or from folders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.channel import get_channel
from coterie.report.comparison import weighted, worst_tenth
from coterie.report.tables import COLUMNS, comparison_table, markdown
from coterie.report.units import bytes_text
from coterie.runs.compare import compare, compare_into, with_locals
from coterie.runs.experiment import Contender, Experiment

CONFIG = {
    "data": {"name": "digits", "clients": 5},
    "training": {"rounds": 2, "eval_every": 1, "batch_size": 8},
    "methods": [
        {"name": "fedu", "local_steps": 2},
        {"name": "pfedme", "local_rounds": 2, "inner_steps": 2},
    ],
    "seeds": [0, 1],
}


def quiet(sentence: str) -> None:
    pass


def test_every_method_stands_beside_a_local_with_its_own_gradient_work() -> None:
    fedu, fedavg = coterie.FedU(local_steps=3, lr=0.1), coterie.FedAvg(local_epochs=2, lr=0.2)
    pfedme = coterie.PFedMe(local_rounds=3, inner_steps=4, personal_lr=0.3)
    labelled, partner = with_locals([Contender(m) for m in (fedu, fedavg, pfedme)])
    methods = [c.method for _, c in labelled]
    assert [partner[methods.index(m)] is not None for m in (fedu, fedavg, pfedme)] == [True] * 3
    for m, steps, epochs, lr, trains in (
        (fedu, 3, None, 0.1, "sampled"),
        (fedavg, 1, 2, 0.2, "sampled"),
        (pfedme, 12, None, 0.3, "all"),
    ):
        place = partner[methods.index(m)]
        assert place is not None
        local = methods[place]
        assert isinstance(local, coterie.Local)
        assert (local.local_epochs, local.lr, local.trains) == (epochs, lr, trains)
        assert epochs is not None or local.local_steps == steps


def test_one_local_serves_all_with_equal_work() -> None:
    labelled, partner = with_locals(
        [Contender(m) for m in (coterie.FedU(), coterie.FedAvg(), coterie.Global())]
    )
    assert [label for label, _ in labelled] == ["Local", "FedU", "FedAvg", "Global"]
    assert partner == [0, 0, 0, 0]


def test_namesakes_are_told_apart_by_what_differs() -> None:
    labelled, _ = with_locals([Contender(coterie.FedU(eta=eta)) for eta in (0.1, 0.2)])
    assert [label for label, _ in labelled] == ["Local", "FedU (eta=0.1)", "FedU (eta=0.2)"]


def test_channels_are_told_apart_too_and_usual_switches_are_not_told() -> None:
    delta = lambda **o: Contender(coterie.FedU(), get_channel("delta", o))
    labelled, _ = with_locals(
        [Contender(coterie.FedU()), delta(), delta(share=0.05), delta(share=0.05, down=False)]
    )
    labels = [label for label, _ in labelled][1:]
    assert labels == [
        "FedU",
        "FedU + delta (share=0.01)",
        "FedU + delta (share=0.05)",
        "FedU + delta (down=False, share=0.05)",
    ]


def test_small_measures() -> None:
    scores = np.array([0.5, 0.9, np.nan, 0.7, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert worst_tenth(scores) == pytest.approx(0.55)  # two of eleven
    assert weighted(np.array([1.0, 0.0, np.nan]), np.array([3, 1, 0])) == pytest.approx(0.75)
    assert bytes_text(1_500) == "1.5 kB"


def test_memory_and_folders_give_the_same_comparison(tmp_path: Path) -> None:
    experiment = Experiment.from_config(CONFIG)
    stored = compare_into(experiment, tmp_path / "here", say=quiet)
    held = compare(
        experiment.methods,
        experiment.federation(),
        "mlr",
        seeds=[0, 1],
        rounds=2,
        eval_every=1,
        batch_size=8,
    )
    for a, b in zip(stored.entries, held.entries, strict=True):
        assert a.label == b.label
        for x, y in zip(a.outcomes, b.outcomes, strict=True):
            assert all(np.array_equal(x.scores[v], y.scores[v], equal_nan=True) for v in x.scores)
            assert np.array_equal(x.up, y.up)
            assert x.validation == pytest.approx(y.validation, rel=1e-12)
            assert x.test_rows == y.test_rows
            assert x.rows is not None
            assert y.rows is not None
            assert np.array_equal(x.rows.client, y.rows.client)
            assert np.array_equal(x.rows.row, y.rows.row)
            assert all(np.array_equal(x.rows.scores[v], y.rows.scores[v]) for v in x.scores)
    assert stored.answer() == held.answer()
    assert (tmp_path / "here" / "table.md").read_text().startswith(markdown(stored))


def test_seeds_are_paired_and_differ(tmp_path: Path) -> None:
    comparison = compare_into(Experiment.from_config(CONFIG), tmp_path / "here", say=quiet)
    first, second = (entry.outcomes for entry in comparison.entries[:2])
    assert np.array_equal(first[0].scores["personal"][0], second[0].scores["personal"][0]), (
        "the same initial model at one seed"
    )
    assert not np.array_equal(first[0].scores["personal"][0], first[1].scores["personal"][0]), (
        "another one at another seed"
    )


def test_resplit_draws_a_split_per_seed_shared_by_all_methods(tmp_path: Path) -> None:
    comparison = compare_into(
        Experiment.from_config({**CONFIG, "resplit": True}), tmp_path / "here", say=quiet
    )
    sizes = [[o.samples.tolist() for o in entry.outcomes] for entry in comparison.entries]
    assert all(s == sizes[0] for s in sizes)
    assert sizes[0][0] != sizes[0][1]
    rows = [[o.test_rows for o in entry.outcomes] for entry in comparison.entries]
    assert all(r == rows[0] for r in rows)
    assert rows[0][0] != rows[0][1]
    assert all(r.gain is not None and r.gain.these is not None for r in comparison.rows()[2:3])


def test_a_collapsed_run_is_called_that_and_never_a_number(tmp_path: Path) -> None:
    methods = [{"name": "fedu", "local_steps": 2, "lr": 1e30}, {"name": "fedavg", "local_steps": 2}]
    comparison = compare_into(
        Experiment.from_config({**CONFIG, "methods": methods, "seeds": [0]}),
        tmp_path / "here",
        say=quiet,
    )
    rows = {row.label: row for row in comparison.rows()}
    assert "FedU diverged in round" in str(rows["FedU"].collapsed)
    assert rows["FedAvg"].collapsed is None
    text = markdown(comparison)
    (line,) = [line for line in text.splitlines() if line.startswith("| FedU")]
    assert "collapsed" in line
    assert not any(
        cell.strip().lower() in ("nan", "inf")
        for table_line in text.splitlines()
        for cell in table_line.split("|")
    )


def test_without_test_data_there_is_nothing_to_compare() -> None:
    with pytest.raises(coterie.InvalidInput, match="no test data"):
        compare(["fedu"], coterie.load("digits", clients=4, test=0.0), rounds=1)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    from rich.console import Console

    comparison = compare(
        [coterie.FedU(local_steps=2)], coterie.load("digits", clients=4), rounds=1, eval_every=1
    )
    console = Console(width=width, file=open("/dev/null", "w"), record=True)  # noqa: SIM115, PTH123
    console.print(comparison_table(comparison, width))
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text.split("mean: over")[0]
    if width == 200:
        assert all(
            column in text
            for column in COLUMNS
            if column not in ("best test round", "data-poor", "newcomers", "predicted time")
        )
