"""The Flower app with Flower's own processes and commands, as docs/deploy-flower.md has them; and
that it uses nothing but Flower's public interface.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie import Federation
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.ports import free_port
from tests.support.hub_lab import NAMES, Lab, make_plan, wait_for

ROOT = Path(__file__).parents[2]
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def test_nothing_but_flowers_public_interface_is_used() -> None:
    """No private import, no patch, and none of Flower's processes is started."""
    files = list((ROOT / "src").rglob("*.py"))
    used = set()
    for path in files:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                used |= {node.module} if (node.module or "").startswith("flwr") else set()
            elif isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names if alias.name.startswith("flwr")}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = re.search(r"flower-super|flwr-\w+app|flwr\.\w+\.\w|FLWR_", node.value)
                assert found is None, (path, node.value)
    assert used == PUBLIC


class Flower:
    """A lab whose hub and clients are Flower's."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.hub, self.nodes = lab, lab.folder / "hub", lab.folder / "keys" / "nodes"
        home, app = lab.folder / "home", lab.folder / "app"
        for part in (self.hub, home, app):
            part.mkdir()
        page = (ROOT / "docs" / "deploy-flower.md").read_text()
        project, config = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        (app / "pyproject.toml").write_text(project)
        config = config.replace("/path/of/keys/nodes/hub", str(self.nodes / "hub"))
        (home / "config.toml").write_text(config.replace("9092", str(lab.port)))
        path = os.pathsep.join([str(Path(sys.executable).parent), lab.env["PATH"]])
        lab.env |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        lab.env |= {"PATH": path, "FLWR_HOME": str(home), "NO_COLOR": "1"}

    def start(self, label: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.lab.folder / f"{label}.out").open("ab") as f:
            self.lab.processes[label] = subprocess.Popen(
                [*map(str, command)], stdout=f, stderr=f, env=self.lab.env, start_new_session=True
            )
        return self.lab.processes[label]

    def superlink(self) -> None:
        files = {"ca-cert": "ca.pem", "cert": "node.pem", "key": "node.key"}
        flags = [(f"--ssl-{flag}file", self.nodes / "hub" / file) for flag, file in files.items()]
        self.start(
            *("superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.lab.port)),
            *(text for pair in flags for text in pair),
            *("--enable-supernode-auth", "--database", self.lab.folder / "superlink.db"),
            "--disable-runtime-dependency-installation",
        )

    def register(self, name: str) -> None:
        command = ("flwr", "supernode", "register", self.nodes / name / "flower.pub", "lab")
        wait_for(lambda: self.start("register", *command, "--name", name).wait(120) == 0, 120)

    def supernode(self, name: str, *plans: Plan) -> None:
        sites = os.pathsep.join(str(self.lab.folder / name / f"{plan.name}.toml") for plan in plans)
        keys = self.nodes / name
        self.start(
            *(name, "flower-supernode", "--superlink", f"127.0.0.1:{self.lab.port}"),
            *("--root-certificates", keys / "ca.pem"),
            *("--auth-supernode-private-key", keys / "flower.key"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", f'sites="{sites}"'),
        )

    def run(self, plan: Plan, label: str = "run") -> subprocess.Popen[bytes]:
        paths = f'plan="{self.lab.folder / plan.name}.toml" folder="{self.hub}"'
        return self.start(
            *(label, "flwr", "run", self.lab.folder / "app", "lab"),
            *("--run-config", paths, "--stream"),
        )


@pytest.mark.slow
def test_flowers_own_commands_end_as_the_simulator_does(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """Two plans, the second of which is stopped and run again."""
    pytest.importorskip("flwr")
    rules = Rules(patience=120.0, give_up=800.0)
    fedu = make_plan(fed, "fedu", rounds=2, rules=rules)
    lp_proj = make_plan(fed, "lp-proj-1", rounds=3, rules=rules)
    lab = hub_lab(fedu, lp_proj)
    flower = Flower(lab)
    flower.superlink()
    for name in NAMES:
        flower.register(name)
        flower.supernode(name, fedu, lp_proj)
    flower.run(fedu)
    wait_for(lambda: "finished." in lab.log(fedu) or "stopped" in lab.log(fedu), 900)
    lab.assert_equal(fedu)
    assert all(c["rejected"] == 0 and c["scores"] for c in lab.status(fedu)["clients"])
    flower.run(lp_proj, "first")
    wait_for(lambda: lab.round(lp_proj) >= 1, 900)
    shown = subprocess.run(
        ["flwr", "list", "lab", "--format", "json"],
        **{"capture_output": True, "text": True, "env": lab.env},
    )
    number = re.findall(r'"run-id": "?(\d+)', shown.stdout)[0]
    stop = flower.start("stop", "flwr", "stop", number, "lab")
    assert stop.wait(120) == 0, lab.said("stop") + shown.stdout
    lab.processes["first"].wait(300)
    flower.run(lp_proj, "again")
    wait_for(lambda: "finished." in lab.log(lp_proj), 900)
    assert "going on from round" in lab.log(lp_proj)
    lab.assert_equal(lp_proj, exactly=False)
    lab.kill("superlink", sign=signal.SIGTERM)
