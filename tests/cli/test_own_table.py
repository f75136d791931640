"""`coterie compare OWN.csv`: settings take effect before the table is read, what is decided is
said, and mistakes are one sentence.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie.core.errors import InvalidInput, Notice
from coterie.runs.presets import own_data, with_methods

Cli = Callable[..., tuple[int, str, str]]
QUICK = (
    "--minutes",
    "0",
    "-s",
    "training.rounds=1",
    "-s",
    "training.eval_every=1",
    "-s",
    "training.batch_size=4",
)
OWN = ("--client", "site", "--target", "answer")


@pytest.fixture
def cli(cli: Cli, tmp_path: Path) -> Cli:
    """The command line in an empty folder; errors in one line."""
    (tmp_path / "experiment.toml").unlink()

    def call(*arguments: str) -> tuple[int, str, str]:
        code, out, err = cli(*arguments)
        return code, out, " ".join(err.split())

    return call


def readings(path: Path, *, sites: int = 3, gap: bool = True, index: bool = False) -> Path:
    """24 rows; a gap, a column of dates, and perhaps a row index."""
    lines = [f"{',' if index else ''}site,heat,when,answer"]
    for i in range(24):
        heat = "" if gap and i == 5 else f"{i % 7 + 0.5}"
        row = f"S{i % sites},{heat},2024-01-{i + 1:02d},{'yes' if i % 7 > 3 else 'no'}"
        lines.append(f"{i},{row}" if index else row)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_remedies_that_the_errors_name_can_be_given(cli: Cli, tmp_path: Path) -> None:
    readings(tmp_path / "t.csv", index=True)
    refused = ("-s", "data.missing=refuse")
    code, _, err = cli("compare", "t.csv", *OWN, "-m", "local", *QUICK, *refused)
    assert code == 2
    assert "'heat' has 1 missing value" in err
    assert "missing = 'fill'" in err
    more = ("-s", "data.missing=mean", "-s", "method.lr=0.5", "-s", "data.seed=3", "--explain")
    code, out, err = cli("compare", "t.csv", *OWN, "-m", "local", *QUICK, *more)
    assert code == 0, err
    assert re.search(r"when +│ date +│ days since 2024-01-", out)
    assert re.search(r"heat +│ number +│ minus .*; 1 missing: the training mean ", out)
    assert err.count("the nameless column of the table is left out") == 1
    config = tomllib.loads((tmp_path / "runs" / "t-compare" / "config.toml").read_text())
    assert config["data"]["missing"] == "mean"
    assert config["data"]["seed"] == 3
    assert config["method"]["lr"] == 0.5


def made(tmp_path: Path, named: list[str] | None = None, **changes: Any) -> list[dict[str, Any]]:
    config = own_data(readings(tmp_path / "t.csv", gap=False), "site", "answer")
    config["data"]["drop"] = "when"
    found = with_methods(config | changes, named)["methods"]
    assert isinstance(found, list)
    return found


def test_an_option_of_all_methods_that_have_it(tmp_path: Path) -> None:
    usual, set_ = made(tmp_path), made(tmp_path, method={"lr": 0.25})
    assert [m["name"] for m in set_] == [m["name"] for m in usual]
    assert all(m["lr"] == 0.25 for m in set_)
    assert all({**u, "lr": 0.25} == s for u, s in zip(usual, set_, strict=True))
    with pytest.warns(Notice, match="method.eta is set in 'fedu' only"):
        coupled = made(tmp_path, method={"eta": 0.01})
    assert [m["eta"] for m in coupled if m["name"] == "fedu"] == [0.01]


def test_what_somebody_has_set_is_not_searched(tmp_path: Path) -> None:
    config = own_data(readings(tmp_path / "t.csv", gap=False), "site", "answer")
    config["data"]["drop"] = "when"
    assert "tune" not in with_methods(config)
    found = with_methods(config | {"methods": {"pfedme": {"lam": 2.0}}})["tune"]["search"]
    assert set(found) == {"pfedme"}
    assert "lam" not in found["pfedme"]
    assert "personal_lr" in found["pfedme"]
    everywhere = with_methods(config | {"method": {"lr": 0.5}})["tune"]["search"]
    assert {"local", "fedavg", "fedu"} <= set(everywhere)
    assert not any("lr" in spaces for spaces in everywhere.values())


def test_an_option_of_one_method(tmp_path: Path) -> None:
    set_ = {m["name"]: m for m in made(tmp_path, methods={"pfedme": {"lam": 2.0}})}
    assert set_["pfedme"]["lam"] == 2.0
    assert "lam" not in set_["ditto"]
    assert made(tmp_path, method={"name": "pfedme", "lam": 3.0})[0]["lam"] == 3.0
    assert len(made(tmp_path, method="pfedme")) == 1


@pytest.mark.parametrize(
    ("methods", "changes", "sentence"),
    [
        (
            None,
            {"method": {"lrr": 1}},
            "option of the methods, 'lrr' is unknown; did you mean 'lr'",
        ),
        (["fedavg"], {"methods": {"fedu": {"eta": 1}}}, "methods.fedu is given, but .* 'fedavg'"),
        (["fedavg"], {"method": {"name": "fedu"}}, "both --method and method.name"),
        (["fedavg"], {"methods": ["fedu"]}, "both --method and methods"),
        (None, {"methods": {"fedu": 3}}, "methods.fedu is 3, but must be a table of options"),
        (None, {"methods": 3}, "methods is 3, but must be"),
        (None, {"methods": [["fedu"]]}, r"the method \['fedu'\] is unknown"),
        (None, {"method": 3}, "method is 3, but must be a name or a table of options"),
        (["fedavgg"], {"method": {"lr": 1.0}}, "'fedavgg' is unknown"),
        (None, {"data": {"name": "table", "path": "t.csv"}}, "table lacks the option 'target'"),
    ],
)
def test_wrong_settings_of_methods(
    tmp_path: Path, methods: list[str] | None, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        made(tmp_path, methods, **changes)


def test_the_model_decides_how_small_a_projection_is(tmp_path: Path) -> None:
    sizes = {
        model: made(tmp_path, ["lp-proj-2"], model=model)[0]["dsub"] for model in ("mlr", "linear")
    }
    assert sizes == {"mlr": 2, "linear": 1}


def test_a_single_site_is_refused(cli: Cli, tmp_path: Path) -> None:
    readings(tmp_path / "t.csv", sites=1, gap=False)
    code, _, err = cli("compare", "t.csv", *OWN, *QUICK, "-s", "data.drop=when")
    assert code == 2
    assert re.search(r"'t' has a single client \('S0'\), .* at least 2", err), err
    assert not (tmp_path / "runs").exists()


def test_newcomers_are_read_as_the_run_was(cli: Cli, tmp_path: Path) -> None:
    """A gap, and a colour that the run does not know."""
    rows = ["site,heat,colour,answer"]
    rows += [f"S{i % 3},{i % 7},{('red', 'blue')[i % 2]},{i % 2}" for i in range(24)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "e.toml").write_text(
        '[data]\nname = "table"\npath = "t.csv"\nclient = "site"\ntarget = "answer"\n'
        'missing = "mean"\n[training]\nrounds = 1\nbatch_size = 4\n[method]\nname = "fedavg"\n'
    )
    code, _, err = cli("run", "e.toml", "-o", "run")
    assert code == 0, err
    new = ["heat,colour,answer", *(f"{i},red,{i % 2}" for i in range(8)), ",mauve,1"]
    (tmp_path / "new.csv").write_text("\n".join(new) + "\n")
    code, out, err = cli("adapt", "run", "--data", "new.csv", "-o", "models", "--rounds", "1")
    assert code == 0, err
    assert "'colour' has 1 row of 'mauve', which training did not know" in err
    assert "newcomer" in out
