"""The command line on somebody's own table, and on data that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]


def readings(kind: str) -> str:
    """A small table of somebody's own: four sites, a number, a category, and something to
    predict.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    lines = ["site,heat,colour,answer"]
    for i in range(160):
        heat, colour = rng.normal(), rng.choice(["red", "blue"])
        value = heat + (colour == "red") + 0.3 * (i % 4)
        answer = {"classification": "high" if value > 0.8 else "low", "regression": f"{value:.5f}"}[
            kind
        ]
        lines.append(f"S{i % 4},{heat:.5f},{colour},{answer}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_from_somebodys_own_table_to_an_answer_in_words(
    cli: Cli, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "readings.csv").write_text(readings(kind))
    arguments = (
        "compare",
        "readings.csv",
        "--client",
        "site",
        "--target",
        "answer",
        "-m",
        "fedu",
        "-s",
        "training.rounds=4",
    )
    code, out, err = cli(*arguments, "-s", "training.eval_every=4", "--minutes", "0", "--seed", "0")
    assert code == 0, err
    words = " ".join(out.split())
    sure = r"(Federate|Do not federate|Federating makes no clear difference)[^.]* 4 clients[^.]*\."
    assert re.search(rf"{sure} FedU (scores|has)", words), out
    assert re.search(r"like these would gain cannot be answered: 4 clients are too few", words), out
    assert re.search(r"helped: \d of 4 clients.*FedU costs each client [\d.]+ k?B", words), out
    assert ("majority class" in out) == (kind == "classification")
    page = (tmp_path / "runs/readings-compare/report.html").read_text()
    assert cli("report", "runs/readings-compare", "-o", "again.html")[0] == 0
    assert (tmp_path / "again.html").read_text() == page, "a report is made of its runs alone"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--client", "site"), r"say which column to predict with --target"),
        (("--target", "answer"), r"say which column names the client with --client"),
        (
            ("--client", "sites", "--target", "answer"),
            r"'sites' is not in the table.*did you mean 'site'",
        ),
        (
            ("--client", "site", "--target", "answers"),
            r"'answers' is not in the table.*did you mean 'answer'",
        ),
    ],
)
def test_mistakes_with_somebodys_own_table(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "readings.csv").write_text(readings("classification"))
    code, _, err = cli("compare", "readings.csv", *arguments)
    assert code == 2
    assert re.search(sentence, err), err
    assert {p.name for p in tmp_path.iterdir()} == {"experiment.toml", "readings.csv"}


def test_data_show_draws_the_clients(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli(
        "data", "show", "digits", "clients=4", "--out", "pictures", "--graph", "similar"
    )
    assert code == 0
    assert "majority-class score" in out
    assert any(p.suffix == ".png" for p in (tmp_path / "pictures").iterdir())


def test_a_data_folder_without_the_files_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    settings = ("-s", 'data={name="har", download=false}', "--data-dir", "empty")
    assert "no such folder" in cli("run", "experiment.toml", *settings)[2]
    (tmp_path / "empty").mkdir()
    code, _, err = cli("run", "experiment.toml", *settings)
    assert code == 2
    assert re.search(r"is not on this machine.*empty", err), err
