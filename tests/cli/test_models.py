"""`coterie export` and `coterie adapt`: damaged folders, comparisons, sites by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

Cli = Callable[..., tuple[int, str, str]]


def damage(folder: Path, pattern: str) -> None:
    found = list(folder.glob(pattern))
    assert found
    for path in found:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("command", ["export", "adapt"])
def test_models_of_damaged_checkpoints_are_not_untrained_ones(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    assert cli("run", "experiment.toml", "-o", "here")[0] == 0
    damage(tmp_path / "here/checkpoints", "*.safetensors")
    more = ("--all",) if command == "export" else ("-d", "new.npz")
    code, out, err = cli(command, "here", *more)
    assert code == 2
    assert "none of its checkpoints is sound" in " ".join(err.split())
    assert "written" not in out
    assert not list(tmp_path.rglob("client-*.safetensors"))
    assert cli("resume", "here")[0] == 0
    assert cli("export", "here", "--all")[0] == 0


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"rows": [], "hub": null}'])
def test_an_empty_manifest_is_passed_over(cli: Cli, tmp_path: Path, content: str) -> None:
    settings = ("-s", "training.checkpoint_every=2")
    assert cli("run", "experiment.toml", "-o", "here", *settings)[0] == 0
    manifests = sorted((tmp_path / "here/checkpoints").glob("*.json"))
    assert len(manifests) == 2
    manifests[0].write_text(content)
    assert cli("export", "here", "--all")[0] == 0
    (tmp_path / "here/status.json").write_text('{"finished": false}')
    manifests[1].write_text(content)
    code, _, err = cli("resume", "here")
    assert code == 0, err
    assert "is damaged" in err
    assert "begins again" in err


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet", "timing.parquet"])
def test_a_cut_table_of_a_finished_run_is_told(cli: Cli, tmp_path: Path, name: str) -> None:
    command = ("compare", "experiment.toml", "-o", "there")
    assert cli(*command)[0] == 0
    run = next((tmp_path / "there/runs").glob("fedu*"))
    damage(run, name)
    code, _, err = cli(*command)
    assert code == 2
    assert run.name in err
    assert name in err
    assert "delete" in err
    assert err.count("\n") == 1


def test_a_cut_table_of_a_single_run_is_told(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "experiment.toml", "-o", "here")[0] == 0
    damage(tmp_path / "here", "rounds.parquet")
    code, _, err = cli("resume", "here")
    assert code == 2
    assert "rounds.parquet" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "again"),
    [
        (("compare", "experiment.toml", "-o", "there"), "export"),
        (("compare", "experiment.toml", "-o", "there"), "adapt"),
        (("attack", "experiment.toml", "-a", "gaussian", "-f", "0.4", "-o", "there"), "export"),
    ],
)
def test_the_folder_of_a_comparison_lists_its_runs(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], again: str
) -> None:
    assert cli(*command)[0] == 0
    more = ("--all",) if again == "export" else ("-d", "new.npz")
    code, _, err = cli(again, "there", *more)
    assert code == 2
    runs = [p.parent.relative_to(tmp_path) for p in tmp_path.glob("there/runs/**/config.toml")]
    assert len(runs) >= 2
    for run in runs:
        assert str(run) in err
    assert "holds several runs" in err
    assert err.count("\n") == 1
    if (command[0], again) == ("compare", "export"):
        run = next(run for run in runs if "fedu" in run.name)
        assert cli("export", str(run), "-c", "1", "-o", "one")[0] == 0
        card = json.loads((tmp_path / "one/card.json").read_text())
        scores = pq.read_table(tmp_path / run / "clients.parquet").to_pandas()
        alone = next(run for run in runs if "local" in run.name)
        theirs = pq.read_table(tmp_path / alone / "clients.parquet").to_pandas()
        last = lambda t: t[(t.split == "test") & (t["round"] == 4) & (t.client == 1)].score.item()
        assert card["gain over Local"]["mean"] == pytest.approx(last(scores) - last(theirs))
        assert "Against training alone" in (tmp_path / "one/card.md").read_text()


def test_a_site_is_exported_by_its_name(cli: Cli, tmp_path: Path) -> None:
    sites = ("north", "south", "2")
    rows = [f"{sites[i % 3]},{i % 7},{'xy'[i % 2]}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,heat,answer", *rows]) + "\n")
    data = 'data={name="table", path="rows.csv", client="site", target="answer"}'
    assert cli("run", "experiment.toml", "-o", "here", "-s", data)[0] == 0
    names = {}
    for site in sites:
        code, _, err = cli("export", "here", "--client", site, "-o", f"{site}.safetensors")
        assert code == 0, err
        with safe_open(tmp_path / f"{site}.safetensors", "numpy") as f:
            names[site] = f.metadata()
    assert {m["site"] for m in names.values()} == set(sites)
    assert {m["client"] for m in names.values()} == {"0", "1", "2"}
    assert all(names[site]["site"] == site for site in sites)
    code, _, err = cli("export", "here", "--client", "nort")
    assert code == 2
    assert "did you mean 'north'?" in err
    code, _, err = cli("export", "here", "--client", "7")
    assert code == 2
    assert "7" in err


def test_a_client_without_a_name_is_its_number(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "experiment.toml", "-o", "here")[0] == 0
    code, _, err = cli("export", "here", "--client", "north")
    assert code == 2
    assert "client is 'north', but must be from 0 to 4" in err
    code, _, err = cli("export", "here", "--client", "5")
    assert code == 2
    assert "from 0 to 4" in err


def test_a_full_disk_is_told(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors has its own error for what the system refuses."""
    import resource
    import signal

    assert cli("run", "experiment.toml", "-o", "here")[0] == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, before[1]))
    try:
        code, _, err = cli("export", "here", "--client", "0", "-o", "one.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert code == 2, err
    assert "one.safetensors" in err
    assert "cannot be written" in err
    assert not [p for p in tmp_path.iterdir() if p.suffix in (".part", ".safetensors")]


def test_status_of_a_fallback_is_told(cli: Cli, tmp_path: Path) -> None:
    """The checkpoint before the last one is no end of the run."""
    settings = ("-s", "training.checkpoint_every=2")
    assert cli("run", "experiment.toml", "-o", "here", *settings)[0] == 0
    newest = max((tmp_path / "here/checkpoints").glob("*.json"))
    assert json.loads(newest.read_text())["round"] == 4
    newest.write_text("")
    code, _, err = cli("export", "here", "--client", "0", "-o", "one.safetensors")
    assert code == 0
    assert "after round 2 of 4" in " ".join(err.split())
