"""The front door: version, doctor, exit codes, wrong words, and that results can be read by
scripts.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.cli.as_json import plain
from coterie.cli.main import EXIT_CODES, command
from coterie.report.attacked import Cell, Grid
from coterie.report.plain import grid_plain

Cli = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]

# What has no result to print: it serves, takes part, or writes keys and states.
NO_RESULT = {
    ("ui",),
    ("peer",),
    ("hub", "up"),
    ("hub", "run"),
    ("hub", "backup"),
    ("hub", "restore"),
    ("hub", "go-back"),
    ("client", "join"),
    ("client", "export"),
    ("keys", "init"),
    ("keys", "issue"),
    ("keys", "revoke"),
    ("keys", "kit"),
    ("keys", "import"),
    ("new", "experiment"),
    ("new", "method"),
    ("new", "deployment"),
}


def leaves(one: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(one, "commands", None)
    if inner is None:
        yield path, one
        return
    for name, each in inner.items():
        yield from leaves(each, (*path, name))


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    for flag in ("--version", "-V"):
        assert cli(flag)[:2] == (0, f"coterie {coterie.__version__}\n")


def test_the_changelog_and_the_citation_name_the_version() -> None:
    """The version is written down in one place; what people write by hand follows it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", text, re.MULTILINE)
    assert released[:1] == [coterie.__version__]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {coterie.__version__}\n" in cited


def test_every_command_with_a_result_can_print_json() -> None:
    found = {
        path: any("--json" in p.opts for p in one.params)
        for path, one in leaves(command())
        if path not in NO_RESULT
    }
    assert [path for path, has in found.items() if not has] == []


def test_doctor(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    code, out, _ = cli("doctor")
    assert code == 0
    assert "Nothing is wrong." in out
    (tmp_path / "data/mnist").mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"data/mnist/{name}-ubyte").touch()
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "data"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr("coterie.cli.doctor.PORTS", {"ui": taken.getsockname()[1]})
        code, out, _ = cli("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["data"]["mnist"] == str(tmp_path / "data/mnist")
    assert found["data"]["har"] == "not on this machine"
    assert found["caches"]["folder"] == str(tmp_path / "cache")
    assert coterie.__version__ in found["environment"]["coterie"]
    assert list(found["ports"].values()) == ["taken; choose another with --port"]
    assert found["problems"] == []


def test_doctor_says_what_is_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", "nowhere")
    code, out, _ = cli("doctor", "--json")
    assert code == 1
    assert json.loads(out)["problems"] == [
        "COTERIE_DATA is 'nowhere', but there is no such folder."
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["comparee"], "the command 'comparee' of `coterie` is unknown; did you mean 'compare'?"),
        (["data", "lst"], "the command 'lst' of `coterie data` is unknown; did you mean 'list'?"),
        (["run", "--dat-dir", "x"], "of `coterie run` is unknown; did you mean '--data-dir'?"),
        (["list", "--zzz"], "is unknown; `coterie list --help` lists them."),
        (["show", "pfedmee"], "'pfedmee' is unknown; did you mean 'pfedme'?"),
        (["list", "methodds"], "'methodds' is unknown; did you mean 'methods'?"),
        (["compare", "-d", "digit", "-m", "fedu"], "did you mean 'digits'?"),
        (["compare", "-d", "digits", "-m", "fedavgg"], "did you mean 'fedavg'?"),
        (["check", "experiment.toml", "-s", "training.round=3"], "did you mean 'rounds'?"),
        (["data", "show", "digits", "client=3"], "did you mean 'clients'?"),
    ],
)
def test_a_wrong_word_names_the_nearest(cli: Cli, words: list[str], told: str) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [  # typer 0.29 knows only which bound is broken
        (["chaos", "--events", "0"], r"--events is 0, but must be a (whole )?number ≥ 1\."),
        (["chaos", "--events", "few"], r"--events is few, but must be a whole number( ≥ 1)?\."),
        (
            ["compare", "t.csv", "--minutes=-1"],
            r"--minutes is -1(\.0)?, but must be a number ≥ 0",
        ),
        (["demo", "--seeds", "1.5"], r"--seeds is 1\.5, but must be a whole number( ≥ 1)?\."),
    ],
)
def test_a_number_that_is_not_allowed_is_named(cli: Cli, words: list[str], told: str) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert re.search(told, " ".join(err.split())), err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("keys kit", "a file with [[peers]] (name, place) and [[edges]] (between, weight)."),
        ("peer", "listen, [[neighbours]])."),
        ("client export", "hub, [data]."),
        ("data map", '[data] name = "mapped", path = "FOLDER"; with [training] store = "file"'),
    ],
)
def test_help_shows_names_of_tables(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    """Rich takes them for styles, unless they are escaped."""
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = cli(*words.split(), "--help")
    assert (code, told in " ".join(out.split())) == (0, True), out


def test_exit_codes_are_documented_alike(cli: Cli) -> None:
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    codes = re.findall(r"\b(\d+) [a-z]", EXIT_CODES)
    assert codes == ["0", "1", "2", "3", "4", "130"]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == codes
    _, out, _ = cli("--help")
    assert "Exit codes: 0 done;" in " ".join(out.split())


def test_exit_codes(cli: Cli) -> None:
    """0 and 1 as an answer, 2 for a wrong input, 3 for a run that diverges; 4 and 130 are tested
    where machines are waited for and runs are stopped.
    """
    assert cli("check", "experiment.toml")[0] == 0
    code, out, _ = cli("check", "experiment.toml", "-s", "method.lr=1e6", "--json")
    assert code == 1
    assert json.loads(out)[0]["stable"] is False
    assert cli("run", "nowhere.toml")[0] == 2
    assert cli("run", "experiment.toml", "-s", "method.lr=1e30", "-o", "away")[0] == 3


def test_results_as_json(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("run", "experiment.toml", "-o", "here", "--json")
    assert code == 0
    made = json.loads(out)
    assert (made["folder"], made["round"], made["rounds"]) == ("here", 4, 4)
    tested = next(line for line in made["scores"] if line["split"] == "test")
    assert 0 <= tested["mean"] <= 1
    assert json.loads(cli("resume", "here", "--json")[1])["scores"] == made["scores"]
    code, out, _ = cli("compare", "experiment.toml", "-o", "there", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["methods"][0]["method"] == "Local"
    mean = next(m for m in found["methods"] if m["method"] == "FedU")["mean"]["value"]
    assert mean == pytest.approx(tested["mean"])
    assert found["answer"]["answer"]
    again = json.loads(cli("report", "there", "--json")[1])
    assert again["methods"] == found["methods"]
    seen = json.loads(cli("watch", "there", "--once", "--json")[1])
    assert {run["state"] for run in seen["runs"]} == {"finished"}
    assert cli("watch", "there", "--json")[0] == 2
    code, out, _ = cli("export", "here", "--client", "0", "-o", "zero", "--json")
    assert json.loads(out) == {"models": ["zero"]}
    code, out, _ = cli("plot", "there", "-o", "curves.svg", "--json")
    assert json.loads(out) == {"figure": "curves.svg"}


def test_listings_as_json(cli: Cli, tmp_path: Path) -> None:
    everything = json.loads(cli("list", "--json")[1])
    assert {"methods", "data", "models", "graphs"} <= set(everything)
    only = json.loads(cli("list", "methods", "--json")[1])
    assert only == {"methods": everything["methods"]}
    (shown,) = json.loads(cli("show", "fedu", "--json")[1])
    assert shown["title"] == "FedU"
    assert {"lr", "eta"} <= {o["option"] for o in shown["options"]}
    assert {d["name"] for d in json.loads(cli("data", "list", "--json")[1])} >= {"digits", "mnist"}
    described = json.loads(cli("data", "show", "digits", "clients=3", "--json")[1])
    assert len(described["clients"]) == 3
    assert sum(described["samples"]["train"]) > 0
    assert [p.name for p in tmp_path.iterdir()] == ["experiment.toml"]
    tables = json.loads(cli("reproduce", "list", "--json")[1])
    assert {"fedu/table-3"} <= {t["table"] for t in tables}


def test_own_tables_as_json(cli: Cli, tmp_path: Path) -> None:
    rows = [f"{'AB'[i % 2]},{i},{'low' if i < 20 else 'high'}" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["site,heat,label", *rows]))
    own = ("mine.csv", "--client", "site", "--target", "label")
    columns = json.loads(cli("data", "explain", *own, "--json")[1])
    assert {c["column"]: c["taken_for"] for c in columns} == {
        "site": "client",
        "label": "target",
        "heat": "number",
    }
    mapped = cli("data", "map", "mine.csv", "client=site", "target=label", "-o", "m", "--json")
    assert json.loads(mapped[1]) == {"folder": "m", "clients": 2}


def test_attacks_as_json() -> None:
    """A cell where one of two seeds collapsed."""
    cells = {
        ("FedU", "sign-flip", 0.0): Cell((0.75, 0.25), (None, None)),
        ("FedU", "sign-flip", 0.5): Cell((0.5, None), (None, 7), (-0.25, None)),
    }
    found = grid_plain(Grid("mine", ["FedU"], ["sign-flip"], [0.0, 0.5], [0, 1], cells))
    calm, under = plain(found)["cells"]
    assert (calm["mean"]["value"], calm["change"], calm["collapsed_at"]) == (0.5, None, [])
    assert (under["mean"]["value"], under["mean"]["seeds"]) == (0.5, 1)
    assert (under["change"], under["collapsed_at"], under["malicious"]) == (-0.25, [7], 0.5)


def test_a_report_is_a_page_or_lies_in_a_folder(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("report", "there", "-o", "page")
    assert code == 2
    assert "--out is 'page', but must be a file that ends in .html" in " ".join(err.split())


@pytest.mark.parametrize("zenoh", [True, False])
def test_a_process_with_zenoh_ends_without_pythons_own_end(zenoh: bool) -> None:
    """Zenoh's threads would abort it now and then (exit code -6), whatever the command said."""
    loaded = "sys.modules.setdefault('zenoh', sys);" if zenoh else ""
    script = (
        "import atexit, sys; from coterie.cli import start;"
        f"atexit.register(lambda: print('taken down')); {loaded}"
        "sys.argv = ['coterie', 'show', sys.argv[1]]; start()"
    )
    run = lambda name: subprocess.run(
        [sys.executable, "-c", script, name], capture_output=True, text=True, check=False
    )
    good, bad = run("fedavg"), run("fedawg")
    assert good.returncode == 0, good.stderr
    assert "FedAvg" in good.stdout
    assert ("taken down" in good.stdout) != zenoh
    assert bad.returncode == 2
    assert "fedawg" in bad.stderr
