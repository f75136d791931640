"""A graph that is learnt, from the command line: run, stop, go on, compare, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

CONFIG = """
name = "learnt"
[data]
name = "digits"
clients = 8
test = 0.3
[graph]
kind = "learn"
rule = { name = "kin", neighbours = 2, sketch = 16, after = 2, every = 2 }
[training]
rounds = 4
eval_every = 2
[[methods]]
name = "fedu"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "learnt.toml"
    path.write_text(CONFIG)
    return path


def test_a_run_is_loaded_again_with_the_graph_that_it_learnt(
    cli: Cli, config: Path, tmp_path: Path
) -> None:
    config.write_text(CONFIG.replace("[[methods]]", "[method]"))
    code, _, err = cli("run", str(config), "-o", "learnt")
    assert code == 0, err
    code, _, err = cli("export", "learnt", "--client", "3", "-o", "three")
    assert code == 0, err
    code, _, err = cli("export", "learnt", "--newcomers", "-o", "kit")
    assert code == 0, err
    facts = json.loads((tmp_path / "kit" / "newcomers.json").read_text())
    assert facts["graph"]["rule"]["name"] == "kin"


def test_wrong_rules_are_one_sentence(cli: Cli, config: Path, tmp_path: Path) -> None:
    for setting, wanted in (
        ("graph.rule=kim", "kin"),
        ("graph.neighbours=3", "graph.neighbours"),
        ("graph.kind=complete", "graph.rule"),
    ):
        code, _, err = cli("run", str(config), "-o", str(tmp_path / "no"), "-s", setting)
        assert code == 2, setting
        assert wanted in err
        assert "Traceback" not in err
        assert not (tmp_path / "no").exists()


def test_oracles_are_called_so(cli: Cli, config: Path, tmp_path: Path) -> None:
    code, out, _ = cli("list", "graphs")
    assert code == 0
    assert out.count("oracle") == 4
    config.write_text(CONFIG.replace('"learn"\nrule', '"similar"\n#'))
    code, _, err = cli("compare", str(config), "-o", str(tmp_path / "compared"))
    assert code == 0, err
    assert "is an oracle" in (tmp_path / "compared" / "table.md").read_text()
    config.write_text(CONFIG)
    code, _, err = cli("compare", str(config), "-o", str(tmp_path / "blind"))
    assert code == 0, err
    told = (tmp_path / "blind" / "table.md").read_text()
    assert "oracle" not in told
    assert "learnt a graph of" in told
    assert "The graph that FedU learnt" in (tmp_path / "blind" / "report.html").read_text()


def test_show_has_the_rule(cli: Cli) -> None:
    code, out, _ = cli("show", "rule", "kin")
    assert code == 0
    assert "neighbours" in out
    assert "cos(" in out
