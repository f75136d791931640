"""deploy/: what the container file, systemd units and Kubernetes examples run exists as written."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import command

HERE = Path(__file__).parents[2] / "deploy"
UNITS = sorted((HERE / "systemd").glob("*.service"))
yaml = pytest.importorskip("yaml")


def parses(arguments: list[str]) -> None:
    """The command line takes these arguments (nothing is run)."""
    one: Any = command()
    while hasattr(one, "commands"):
        name, *arguments = arguments
        one = one.commands[name]
    one.make_context(one.name, arguments)


def documents() -> list[dict[str, Any]]:
    files = sorted((HERE / "kubernetes").glob("*.yaml"))
    assert len(files) == 2
    return [one for path in files for one in yaml.safe_load_all(path.read_text())]


def pods() -> list[dict[str, Any]]:
    return [
        d["spec"]["template"]["spec"] for d in documents() if d["kind"] in ("StatefulSet", "Job")
    ]


def test_kubernetes_runs_commands_that_exist_as_nobody_special() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        known = {volume["name"] for volume in pod["volumes"]} | {"state"}
        for one in pod["containers"]:
            parses(list(one["args"]))
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in one["volumeMounts"]} <= known
            probe = one.get("readinessProbe")
            if probe is not None:
                code, port = probe["exec"]["command"][2], one["args"][-1]
                ast.parse(code)
                assert f":{port}/healthz" in code
    gate = pods()[-1]["containers"][0]
    policy = next(d for d in documents() if d["kind"] == "NetworkPolicy" and "hub" in str(d))
    assert policy["spec"]["ingress"][0]["ports"][0]["port"] == gate["ports"][0]["containerPort"]


def test_the_container_says_whether_it_is_well() -> None:
    text = (HERE / "Containerfile").read_text()
    found = re.search(r"^HEALTHCHECK .*\\\n\s+CMD (\[.*\])$", text, re.MULTILINE)
    assert found is not None
    words = ast.literal_eval(found[1])
    ast.parse(words[2])
    assert words[:2] == ["python", "-c"]
    assert re.search(r"^\s+COTERIE_METRICS=\d+$", text, re.MULTILINE)
    assert "COTERIE_METRICS" in words[2]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_run_commands_that_exist(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *arguments = line.split()
    assert program == "/opt/coterie/bin/coterie"
    parses(arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """But for the program and its user, which are not installed here."""
    for unit in UNITS:
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.M)
        text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.M)
        (tmp_path / unit.name).write_text(text)
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=120
    )
    # Before version 254 these are not known, and are left out of account.
    newer = re.compile(r"Unknown key '(RestartSteps|RestartMaxDelaySec)'")
    complaints = [line for line in done.stderr.splitlines() if line and not newer.search(line)]
    assert [line for line in complaints if "coterie" in line] == []
    assert done.returncode == 0, done.stderr
