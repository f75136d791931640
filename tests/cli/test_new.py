"""What `coterie new` writes works as it is; shells complete what there is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.methods import METHODS
from coterie.runs.experiment import Experiment

Cli = Callable[..., tuple[int, str, str]]


def test_an_experiment(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("new", "experiment", "mine.toml")
    assert code == 0, err
    assert "coterie compare mine.toml" in out
    made = Experiment.from_config(tomllib.loads((tmp_path / "mine.toml").read_text()))
    assert [method.name for method in made.methods] == ["fedavg", "ditto", "fedu"]
    small = ("-s", "training.rounds=2", "-s", "training.eval_every=1", "-s", "data.clients=4")
    code, out, err = cli("compare", "mine.toml", "-m", "fedavg", *small)
    assert code == 0, err
    assert "FedAvg" in out
    code, _, err = cli("new", "experiment", "mine.toml")
    assert code == 2
    assert "'mine.toml' is there already" in err


def test_a_method_and_its_test(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(METHODS)
    code, _, err = cli("new", "method", "soft-pull.py")
    assert code == 0, err
    assert {p.name for p in tmp_path.glob("*.py")} == {"soft_pull.py", "test_soft_pull.py"}
    try:
        code, out, err = cli("show", "soft-pull", "--import", "soft_pull.py")
        assert code == 0, err
        assert "how far x_k is pulled" in out
        METHODS.clear()
        METHODS.update(before)
        monkeypatch.setattr(sys, "path", list(sys.path))
        place: dict[str, object] = {"__file__": str(tmp_path / "test_soft_pull.py")}
        exec((tmp_path / "test_soft_pull.py").read_text(), place)
        tests = [f for name, f in place.items() if name.startswith("test_")]
        assert len(tests) == 3
        for test in tests:
            assert callable(test)
            test()
    finally:
        METHODS.clear()
        METHODS.update(before)
        sys.modules.pop("soft_pull", None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("method", "fedu.py"), "there is a method 'fedu' already"),
        (("method", "9.py"), "the method's name is '9', but must be of small letters"),
        (("method", "a.txt"), "the file is 'a.txt', but must end in .py"),
        (("deployment", "My Clinic"), "the federation's name is 'My Clinic'"),
    ],
)
def test_wrong_names_are_told(cli: Cli, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    code, _, err = cli("new", *words)
    assert code == 2
    assert told in " ".join(err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["experiment.toml"]


def test_a_deployment_can_be_read(cli: Cli, tmp_path: Path) -> None:
    from coterie.deploy.site import Site

    code, out, err = cli("new", "deployment", "clinic")
    assert code == 0, err
    assert "sh clinic/run-here.sh" in out
    for site in ("site-a", "site-b", "site-c"):
        made = Site.from_file(tmp_path / "clinic" / site / "site.toml")
        assert made.plan.method.name == "fedu"
        own = made.load_data()
        assert own.input_shape == (2,)
        assert set(own.train.y.tolist()) == {0, 1}


@pytest.mark.slow
def test_a_deployment_runs_on_this_machine(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("zenoh", reason="Zenoh is an extra")
    cli("new", "deployment", "clinic")
    folder = tmp_path / "clinic"
    ran = subprocess.run(
        ["sh", "run-here.sh"],
        cwd=folder,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Results:" in ran.stdout
    for site in ("site-a", "site-b", "site-c"):
        assert list((folder / site / "models").iterdir())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("coterie com", ["compare"]),
        ("coterie data exp", ["explain"]),
        ("coterie compare --fair", ["--fairness"]),
        ("coterie compare -m fedb", ["fedbabu", "fedbn"]),
        ("coterie list gra", ["graphs"]),
    ],
)
def test_shells_complete(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    found: list[str],
) -> None:
    from coterie.cli import main

    monkeypatch.setattr(sys, "argv", ["coterie"])
    monkeypatch.setenv("_COTERIE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("COTERIE_NO_CACHE", "1")
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert capsys.readouterr().out.split() == found
