"""The command line: what it prints, and that every mistake is one clear sentence with a non-zero
exit and nothing half-written.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from coterie import METHODS, MODELS
from coterie.data import SOURCES

Cli = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), typer.Exit(4)], ids=["interrupted", "exit 4"]
)
def test_who_is_stopped_does_not_exit_as_if_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    def stopped(path: Path) -> None:
        raise stop

    monkeypatch.setattr("coterie.cli.deploy.read_statuses", stopped)
    code, _, _ = cli("status", ".")
    assert code == (4 if isinstance(stop, typer.Exit) else 130)


def test_run_resume_export(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("run", "experiment.toml", "-o", "here")
    assert code == 0
    assert "after round 4" in out
    assert {p.name for p in (tmp_path / "here").iterdir()} >= {
        "config.toml",
        "environment.json",
        "rounds.parquet",
        "clients.parquet",
        "ledger.parquet",
        "timing.parquet",
        "rows.parquet",
        "checkpoints",
        "status.json",
    }
    assert cli("resume", "here")[0] == 0
    code, out, _ = cli("export", "here", "--client", "2", "-o", "two.safetensors")
    assert code == 0
    assert (tmp_path / "two.safetensors").is_file()
    assert cli("export", "here", "--all")[0] == 0
    assert len(list((tmp_path / "here" / "models").glob("*/model.safetensors"))) == 5


def test_compare_writes_a_table_and_a_page_and_can_be_repeated(cli: Cli, tmp_path: Path) -> None:
    arguments = (
        "compare",
        "experiment.toml",
        "-m",
        "fedu",
        "-m",
        "fedavg",
        "--seed",
        "0",
        "--seed",
        "1",
        "-o",
        "there",
    )
    code, out, _ = cli(*arguments)
    assert code == 0
    for text in ("Local", "FedU", "FedAvg", "majority class", "gain over Local"):
        assert text in out
    page = (tmp_path / "there" / "report.html").read_text()
    assert page.count("<figure") == 9
    assert not re.search(r"""(src|href)=["']https?:""", page), (
        "the page must not load anything from elsewhere"
    )
    assert cli("report", "there", "-o", "again.html")[0] == 0
    assert (tmp_path / "again.html").read_text() == page, "a report is made of its runs alone"
    before = {
        p: p.stat().st_mtime_ns for p in (tmp_path / "there" / "runs").rglob("rounds.parquet")
    }
    assert len(before) == 8  # FedU and FedAvg and a Local for each (steps 2 and 20), two seeds
    assert cli(*arguments)[0] == 0
    assert {p: p.stat().st_mtime_ns for p in before} == before, (
        "finished runs must not be run again"
    )
    assert cli(*arguments, "--drop-models")[0] == 0
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert not list((tmp_path / "there").rglob("*.safetensors"))
    code, _, err = cli("export", str(next(iter(before)).parent), "--all", "-o", "models")
    assert code == 2
    assert "were deleted when it had ended (--drop-models)" in " ".join(err.split())


def test_list_and_show_know_everything(cli: Cli) -> None:
    code, out, _ = cli("list")
    assert code == 0
    for name in [*METHODS, *SOURCES, *MODELS]:
        assert name in out
    for name, cls in METHODS.items():
        code, out, _ = cli("show", name)
        assert code == 0
        assert cls.title in out
        for option in cls.public():
            assert option in out


MISTAKES = {
    "unknown method": (
        ("-s", 'method.name="fedyou"'),
        r"method 'fedyou' is unknown; did you mean 'fedu'\?",
    ),
    "unknown data": (
        ("-s", 'data.name="digit"'),
        r"data set 'digit' is unknown; did you mean 'digits'\?",
    ),
    "unknown model": (
        ("-s", 'model.name="mlpp"'),
        r"model 'mlpp' is unknown; did you mean 'mlp'\?",
    ),
    "misspelt key": (
        ("-s", "training.round=3"),
        r"option of training, 'round' is unknown; did you mean 'rounds'\?",
    ),
    "misspelt option": (
        ("-s", "method.local_step=3"),
        r"'local_step' is unknown; did you mean 'local_steps'\?",
    ),
    "misspelt section": (
        ("-s", "trainings.rounds=3"),
        r"section 'trainings' is unknown; did you mean 'training'\?",
    ),
    "wrong type": (
        ("-s", 'training.rounds="many"'),
        r"training.rounds is 'many', but must be a whole number ≥ 1",
    ),
    "fraction for a whole number": (
        ("-s", "training.rounds=1.5"),
        r"training.rounds is 1.5, but must be a whole number ≥ 1",
    ),
    "zero steps": (
        ("-s", "method.local_steps=0"),
        r"fedu.local_steps is 0, but must be a whole number ≥ 1",
    ),
    "negative rate": (("-s", "method.lr=-0.1"), r"fedu.lr is -0.1, but must be a number > 0"),
    "zero rate": (("-s", "method.lr=0"), r"fedu.lr is 0, but must be a number > 0"),
    "infinite rate": (("-s", "method.lr=inf"), r"fedu.lr is inf, but must be a number > 0"),
    "no clients": (
        ("-s", "data.clients=0"),
        r"digits.clients is 0, but must be a whole number ≥ 1",
    ),
    "cohort too large": (
        ("-s", "training.cohort=6"),
        r"training.cohort is 6, but must be at most 5",
    ),
    "cohort and fraction": (
        ("-s", "training.cohort=2", "-s", "training.fraction=0.5"),
        r"both given",
    ),
    "dsub too large": (
        ("-s", 'method={name="lp-proj", dsub=651}'),
        r"dsub is 651, but must be a whole number from 1 to d = 650",
    ),
    "peers cannot sample": (
        ("-s", 'method.name="dfedu"', "-s", "training.cohort=2"),
        r"dfedu has no hub that could sample clients",
    ),
    "unknown graph": (
        ("-s", 'graph.kind="rign"'),
        r"graph.kind, 'rign' is unknown; did you mean 'ring'\?",
    ),
    "missing matrix": (("-s", 'graph.kind="matrix"'), r"graph.matrix .* is missing"),
    "bad schedule": (
        ("-s", 'method.lr={kind="inverse", scale=1.0}'),
        r"kind of schedule in fedu.lr, 'inverse' is unknown",
    ),
    "p below 1": (
        ("-s", 'method={name="lp-proj", p=0.5}'),
        r"lp-proj.p is 0.5, but must be a number ≥ 1",
    ),
    "malformed setting": (("-s", "rounds"), r"--set is 'rounds', but must be of the form"),
    "more labels than there are": (
        ("-s", "data.most_labels=11"),
        r"11 labels per client are asked for, but the data has only 10",
    ),
    "negative seed": (
        ("-s", "training.seed=-1"),
        r"training.seed is -1, but must be a whole number ≥ 0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    settings, sentence = MISTAKES[name]
    code, out, err = cli("run", "experiment.toml", "-o", "never", *settings)
    assert code == 2
    assert re.search(sentence, err), err
    assert err.count("\n") == 1, err
    assert out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["experiment.toml"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "nowhere.toml"), r"'nowhere.toml' does not exist"),
        (("run", "broken.toml"), r"is not valid TOML"),
        (("run", "empty.toml"), r"lacks the section \[data\]"),
        (("resume", "nowhere"), r"folder 'nowhere' does not exist"),
        (("resume", "."), r"is not the folder of a run"),
        (("export", "."), r"say whose model"),
        (("export", ".", "--all"), r"is not the folder of a run"),
        (("compare",), r"nothing to compare on"),
        (("compare", "experiment.toml", "-m", "fedux"), r"did you mean 'fedu'\?"),
        (
            ("compare", "-d", "digits", "-m", "fedu", "-s", "methods.lr=-1"),
            r"methods\.lr is given, but not of which method",
        ),
        (
            ("compare", "-d", "digits", "-m", "fedu", "-s", "method.lr=-1"),
            r"method\.lr is given, but not of which method",
        ),
        (("show", "pfedm"), r"did you mean 'pfedme'\?"),
        (("list", "method"), r"did you mean 'methods'\?"),
        (("dance",), r"the command 'dance' of `coterie` is unknown"),
        (("run",), r"Missing argument"),
    ],
)
def test_other_mistakes(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "broken.toml").write_text("[data\n")
    (tmp_path / "empty.toml").write_text("")
    code, _, err = cli(*arguments)
    assert code == 2
    assert re.search(sentence, err), err
    assert "Traceback" not in err


def test_a_graph_of_another_size_or_shape_is_refused(cli: Cli, tmp_path: Path) -> None:
    import numpy as np

    matrices = {
        "small": (np.ones((3, 3)) - np.eye(3), r"graph has 3 clients, but the federation has 5"),
        "asymmetric": (
            np.triu(np.ones((5, 5)), 1),
            r"not symmetric: the weight from client \d to \d is \d",
        ),
        "negative": (
            np.eye(5) - np.ones((5, 5)),
            r"has the weight -1 between clients \d and \d; weights must be ≥ 0",
        ),
        "selfish": (np.ones((5, 5)), r"couples client 0 to itself"),
    }
    for name, (matrix, sentence) in matrices.items():
        np.save(tmp_path / f"{name}.npy", matrix)
        code, _, err = cli(
            "run",
            "experiment.toml",
            "-o",
            "never",
            "-s",
            'graph.kind="matrix"',
            "-s",
            f'graph.matrix="{name}.npy"',
        )
        assert code == 2
        assert re.search(sentence, err), err
        assert not (tmp_path / "never").exists()


def test_divergence_is_told_in_one_sentence(cli: Cli) -> None:
    code, _, err = cli(
        "run", "experiment.toml", "-o", "wild", "-s", "method.lr=1e30", "-s", "training.rounds=20"
    )
    assert code == 3
    assert re.search(
        r"FedU diverged in round \d+: NaN or infinity from clients? [\d, ]+.*μ̃·η·‖L‖", err
    ), err
    assert "Traceback" not in err


def test_an_existing_folder_is_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    code, _, err = cli("run", "experiment.toml", "-o", "full")
    assert code == 2
    assert "not empty" in err
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["file"]


def test_help_teaches(cli: Cli) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("demo", "run", "resume", "compare", "list", "show", "export"):
        assert command in out
    assert cli("run", "--help")[0] == 0


@pytest.mark.slow
def test_the_demo_ends_in_a_table_and_a_page(tmp_path: Path) -> None:
    """As a user has it: a process of its own, not on a terminal, so without progress bars."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "coterie", "demo", "--rounds", "4"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for method in ("Local", "FedAvg", "pFedMe (personal)", "FedU", "lp-proj-1", "graph-proj"):
        assert method in done.stdout
    assert "\x1b" not in done.stdout
    assert (tmp_path / "coterie-demo" / "report.html").is_file()
