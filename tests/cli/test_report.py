"""`coterie report` and `coterie plot` on the folders of single runs; those of comparisons and
attacks are tested where these are made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., tuple[int, str, str]]


def data_of(file: Path) -> Any:
    text = file.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


def test_runs_side_by_side(cli: Cli, tmp_path: Path) -> None:
    steps = ("-s", "method.local_steps=2")
    for seed in ("0", "1"):
        of = ("-s", f"training.seed={seed}", *steps)
        assert cli("run", "experiment.toml", "-o", f"fedu{seed}", *of)[0] == 0
        alone = ("-s", "method.name=local")
        assert cli("run", "experiment.toml", "-o", f"alone{seed}", *of, *alone)[0] == 0

    code, out, _ = cli("report", "fedu0")
    assert code == 0
    assert "Report: fedu0/report.html" in out
    one = data_of(tmp_path / "fedu0/report.html")
    assert [m["label"] for m in one["methods"]] == ["FedU"]
    assert one["methods"][0]["against"] is None
    assert one["graphs"][0]["kind"] == "complete"
    assert one["curves"][0]["rounds"] == [0, 2, 4]

    assert cli("report", "fedu0", "fedu1", "alone1", "alone0", "-o", "both.html")[0] == 0
    both = data_of(tmp_path / "both.html")
    assert [(m["label"], m["seeds"]) for m in both["methods"]] == [
        ("FedU", [0, 1]),
        ("Local", [0, 1]),
    ]
    assert both["methods"][0]["against"] == 1, "it has FedU's gradient steps and step size"

    assert cli("plot", "fedu0", "alone0", "-f", "spread", "-o", "spread.pdf")[0] == 0
    assert (tmp_path / "spread.pdf").read_bytes().startswith(b"%PDF")
    code, _, err = cli("report", "fedu0", "fedu0", "-o", "twice.html")
    assert (code, "the same at seed 0; name each once" in " ".join(err.split())) == (2, True)
    other = ("-s", "data.clients=4", *steps)
    assert cli("run", "experiment.toml", "-o", "other", *other)[0] == 0
    code, _, err = cli("report", "fedu0", "other", "-o", "unlike.html")
    assert (code, "are not of the same data" in " ".join(err.split())) == (2, True)
    assert not (tmp_path / "unlike.html").exists()
    (tmp_path / "fedu1/status.json").unlink()
    code, _, err = cli("report", "fedu1")
    told = "the run 'fedu1' has not ended; go on with: coterie resume fedu1"
    assert (code, told in " ".join(err.split())) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("report", "nowhere"), "'nowhere' is no folder"),
        (("report", "."), "'.' is not the folder of a run: it has no config.toml"),
        (("plot", "nowhere", "-o", "f.jpg"), "'f.jpg', but must end with one of .pdf"),
        (("plot", "nowhere", "-o", "f.pdf", "--over", "time"), "the axis 'time'"),
        (("plot", "nowhere"), "Missing option"),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    code, _, err = cli(*arguments)
    assert code == 2
    assert told in " ".join(err.split())
