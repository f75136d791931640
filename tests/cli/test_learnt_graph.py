"""A graph that is learnt, from the command line: run, stop, go on, compare, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.conftest import Cli
from tests.support.peering import NAMES, little, make_plan

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


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            {"name": "gain", "tries": 2},
            "the rule 'gain' tries others' models, which real federations do",
        ),
        ({"name": "greedy"}, "the rule 'greedy' tries others' models, which real federations do"),
    ],
)
def test_rules_that_peers_cannot_follow_are_one_sentence(
    cli: Cli, tmp_path: Path, rule: dict[str, Any], sentence: str
) -> None:
    plan = make_plan(little(), "dfedu").with_(clients=NAMES).to_config()
    plan["graph"] = {"kind": "learn", "rule": rule}
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(plan))
    (tmp_path / "peer.toml").write_text(
        'plan = "plan.toml"\nname = "p0"\nfolder = "state"\nlisten = "tcp/127.0.0.1:1"\n'
        '[data]\npath = "own.npz"\n'
    )
    code, _, err = cli("peer", "--config", "peer.toml")
    assert code == 2, err
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "state").exists()


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
