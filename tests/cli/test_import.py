"""A method of one's own on the command line: `--import file.py`, and installed packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie import METHODS
from coterie.core import plugins

Cli = Callable[..., tuple[int, str, str]]

MINE = '''
from coterie.methods import FedAvg
from coterie.methods.base import method


@method("mine", title="Mine", paper="(own)")
class Mine(FedAvg):
    """FedAvg under a name of its own."""
'''
ASK = ("-s", 'method={name="mine", local_steps=1}', "-s", "training.rounds=2")


@pytest.fixture
def own(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """The command line beside a file with a method; what it registers is forgotten afterwards."""
    (tmp_path / "mine.py").write_text(MINE)
    known, files = dict(METHODS), dict(plugins._files)
    path = list(sys.path)

    def fresh(*arguments: str) -> tuple[int, str, str]:
        METHODS.clear()
        METHODS.update(known)
        plugins._files.clear()
        plugins._files.update(files)
        return cli(*arguments)

    yield fresh
    fresh("--version-of-nothing")
    sys.path[:] = path


def test_a_method_of_ones_own_runs_goes_on_and_is_shown(own: Cli, tmp_path: Path) -> None:
    given = ("--import", "mine.py")
    assert "'mine' is unknown" in own("run", "experiment.toml", "-o", "here", *ASK)[2]
    code, out, err = own("run", "experiment.toml", "-o", "here", *ASK, *given)
    assert code == 0, err
    assert "after round 2" in out
    code, _, err = own("resume", "here")
    assert code == 2
    assert f"--import {tmp_path / 'mine.py'}" in err
    assert own("resume", "here", *given)[0] == 0
    assert own("export", "here", "--all", *given)[0] == 0
    assert "Mine" in own("show", "mine", *given)[1]
    assert "mine" in own("list", "methods", *given)[1]
    (tmp_path / "mine.py").write_text(MINE + "\nprint('other')\n")
    code, _, err = own("resume", "here", *given)
    assert code == 2
    assert "mine.py was changed since the run" in err


@pytest.mark.slow
def test_a_comparison_in_several_processes_knows_it_too(own: Cli, tmp_path: Path) -> None:
    command = ("compare", "experiment.toml", *ASK, "--import", "mine.py", "-o", "there")
    code, out, err = own(*command, "--jobs", "2")
    assert code == 0, err
    assert "Mine" in out
    assert own(*command)[0] == 0
    (tmp_path / "mine.py").write_text(MINE + "\n")
    code, _, err = own(*command)
    assert code == 2
    assert "mine.py" in err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import coterie\n1 / 0\n", "failed in line 2: ZeroDivisionError: division by zero."),
        ("def f(:\n", "failed in line 1: SyntaxError"),
        ("import nothing_of_the_sort\n", "ModuleNotFoundError: No module named"),
        (MINE.replace('"mine"', '"fedavg"'), "the name 'fedavg' is taken"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_fails_is_told(
    own: Cli, tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "other.py").write_text(text)
    code, _, err = own("list", "--import", "other.py")
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


def test_an_installed_package_is_found(tmp_path: Path) -> None:
    """As pip leaves it: a module, and metadata with entry points; one of them is broken."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')\n")
    facts = tmp_path / "mine-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[coterie.plugins]\nmine = mine\nbroken = broken\n")
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "coterie", "show", "mine"],
        env={**os.environ, "PYTHONPATH": search, "COTERIE_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "FedAvg under a name of its own." in done.stdout
    assert "'broken' (broken) is left out: RuntimeError: not today" in " ".join(done.stderr.split())


def test_a_config_alone_runs_no_code(own: Cli, tmp_path: Path) -> None:
    """Whoever looks at a folder that somebody sent does not run what lies in it."""
    assert own("run", "experiment.toml", "-o", "here", *ASK, "--import", "mine.py")[0] == 0
    noted = json.loads((tmp_path / "here/inputs.json").read_text())
    assert [Path(file["path"]).name for file in noted["imports"]] == ["mine.py"]
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')\n")
    for command in (("resume", "here"), ("export", "here", "--all")):
        code, _, err = own(*command)
        assert code == 2
        assert "--import" in err
