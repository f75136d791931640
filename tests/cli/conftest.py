"""The command line in an empty folder, called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.cli import main

EXPERIMENT = """
[data]
name = "digits"
clients = 5
[training]
rounds = 4
eval_every = 2
batch_size = 8
[method]
name = "fedu"
local_steps = 2
"""
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Call the command line in an empty folder; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_NO_CACHE", "1")
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
