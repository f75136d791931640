"""What a notebook or a prompt shows of federations, results and comparisons, and data frames."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, get_type_hints

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.data import Federation, from_table
from coterie.engine import progress
from coterie.engine.simulate import Result
from coterie.engine.training import Training, TrainingOptions
from coterie.report.comparison import Comparison

SIZES = {"rounds": 2, "eval_every": 1, "batch_size": 4}


@pytest.fixture(scope="module")
def fed() -> Federation:
    rng = np.random.default_rng(0)
    heat = rng.normal(size=48)
    rows = {
        "site": np.array(["north", "south", "west"])[np.arange(48) % 3],
        "heat": heat,
        "label": np.where(heat > 0, "hot <1>", "cold"),
    }
    return from_table(rows, client="site", target="label")


@pytest.fixture(scope="module")
def comparison(fed: Federation) -> Comparison:
    return coterie.compare(["fedavg"], fed, seeds=[0, 1], **SIZES)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(fed: Federation) -> Result:
    return coterie.simulate("fedavg", fed, **SIZES, held_out=1)  # type: ignore[arg-type]


def test_short_texts(fed: Federation, result: Result, comparison: Comparison) -> None:
    assert repr(fed) == (
        "<Federation 'table': 3 clients, 1 inputs, 2 classes, samples: train 30, validation 6, test"
        " 12>"
    )
    assert repr(result).startswith("<Result of FedAvg on 'table': 3 clients, 2 rounds, test accur")
    assert repr(comparison).startswith("<Comparison 'table': 3 clients, ")
    for thing in (fed, result, comparison):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 250


def test_pages_are_small_and_escaped(
    fed: Federation, result: Result, comparison: Comparison
) -> None:
    for thing in (fed, result, comparison):
        page = thing._repr_html_()
        assert page.count("<table>") == page.count("</table>") == 1
        assert "<1>" not in page
    assert "FedAvg" in comparison._repr_html_()
    assert "heterogeneity" in fed._repr_html_()


def test_a_federation_as_a_frame(fed: Federation) -> None:
    made = fed.to_pandas()
    assert list(made.columns) == ["client", "split", "samples", "cold", "hot <1>"]
    assert len(made) == 9
    assert (made["cold"] + made["hot <1>"]).tolist() == made["samples"].tolist()
    train = made[made["split"] == "train"]
    assert train["client"].tolist() == ["north", "south", "west"]
    np.testing.assert_array_equal(train[["cold", "hot <1>"]], fed.label_counts())


def test_a_quantity_has_mean_and_deviation() -> None:
    made = from_table(
        {"site": ["a", "b"] * 8, "x": np.arange(16.0), "y": np.arange(16) / 3},
        client="site",
        target="y",
        test=0,
    ).to_pandas()
    assert list(made.columns)[3:] == ["mean", "standard deviation"]
    assert made[made["split"] == "test"]["mean"].isna().all()


def test_a_result_as_a_frame(fed: Federation, result: Result) -> None:
    made = result.to_pandas()
    assert list(made.columns) == ["round", "split", "view", "client", "score", "loss"]
    assert not made.duplicated(["round", "split", "view", "client"]).any()
    scores = result.client_scores()
    test = made[(made["split"] == "test") & (made["round"] == 2) & (made["view"] == "global")]
    np.testing.assert_array_equal(test["score"], scores[~np.isnan(scores)])
    out = set(made[made["split"] == "newcomers"]["client"])
    assert len(out) == 1
    assert set(test["client"]) | out == set(fed.names())
    assert not set(test["client"]) & out


def test_a_comparison_as_a_frame(comparison: Comparison) -> None:
    made = comparison.to_pandas()
    assert not made.duplicated(["method", "view", "seed", "client"]).any()
    local = made[made["method"].str.startswith("Local")]
    assert len(local)
    fedavg = made[made["method"] == "FedAvg"]
    entry = next(e for e in comparison.entries if e.label == "FedAvg")
    assert entry.local is not None
    want = [o.last() - alone.last() for o, alone in zip(entry.outcomes, entry.local, strict=True)]
    np.testing.assert_allclose(fedavg["gain over Local"], np.concatenate(want))


def test_without_pandas(fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[pandas\]'"):
        fed.to_pandas()


def test_training_options_are_those_of_training() -> None:
    declared = {f.name for f in dataclasses.fields(Training)}
    # `metric` is a parameter of its own there, which takes functions, too.
    declared.remove("metric")
    assert set(TrainingOptions.__annotations__) == declared
    want = get_type_hints(Training)
    typed = get_type_hints(TrainingOptions)
    assert typed == {name: want[name] for name in typed}
    assert not TrainingOptions.__required_keys__


class Shell:
    kernel = object()


class Display:
    """Stands for IPython in a notebook."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def get_ipython(self) -> Shell:
        return Shell()

    def HTML(self, text: str) -> str:
        return text

    def display(self, page: str, *, display_id: bool) -> Display:
        assert display_id
        self.update(page)
        return self

    def update(self, page: str) -> None:
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Display:
    made = Display()
    monkeypatch.setitem(sys.modules, "IPython", made)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", made)  # type: ignore[arg-type]
    monkeypatch.setattr(progress, "OFTEN", 0.0)
    return made


def test_a_notebook_shows_how_far_it_is(fed: Federation, notebook: Display) -> None:
    coterie.simulate("fedavg", fed, **SIZES, held_out=1)  # type: ignore[arg-type]
    assert "compiling" in notebook.pages[0]
    assert "2 of 2 rounds" in notebook.pages[-1]
    assert "accuracy" in notebook.pages[-1]
    shown = len(notebook.pages)
    coterie.simulate("fedavg", fed, **SIZES, held_out=1, progress=False)  # type: ignore[arg-type]
    assert len(notebook.pages) == shown


def test_a_terminal_shows_it_when_asked(
    fed: Federation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    options: dict[str, Any] = {**SIZES, "held_out": 1}
    coterie.simulate("fedavg", fed, **options)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coterie.simulate("fedavg", fed, **options, progress=True)
    out, err = capsys.readouterr()
    assert not out
    assert "FedAvg" in err
