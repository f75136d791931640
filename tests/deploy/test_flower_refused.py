"""Real federations over Flower: the silent, nonsense, the revoked, strangers, a full disk, and
Flower's own commands.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coterie import Federation
from coterie.deploy.keys import authority as keys
from coterie.deploy.plan import Rules
from coterie.deploy.ports import free_port
from tests.support.flower_lab import NAMES, Lab, make_plan, started, wait_for

pytest.importorskip("flwr")
up = importlib.import_module("coterie.deploy.flower.up")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.mark.slow
def test_it_goes_on_without_a_client_where_the_plan_says_so_and_gives_up_where_it_does_not(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    on = make_plan(
        fed, "fedu", "on", rounds=2, rules=Rules(on_missing="go-on", patience=60.0, give_up=800.0)
    )
    off = make_plan(fed, "fedu", "off", rounds=2, rules=Rules(patience=30.0, give_up=90.0))
    l = lab(on, off)
    l.up()
    l.join("ward-a", "ward-b")
    l.run(on)
    assert l.finish() == 0, l.said("run")
    assert "without ward-c" in l.log(on)
    l.run(off, "off")
    assert l.finish("off") not in (0, None)
    assert "no usable answer from ward-c (not connected)" in l.said("off").replace("\n", " ")
    l.join("ward-c")
    l.run(off, "off again")
    assert l.finish("off again") == 0, l.said("off again")
    l.assert_equal(off)


@pytest.mark.slow
def test_nonsense_is_rejected_counted_and_changes_nothing(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=3)
    l = lab(plan)
    kinds = ["nan", "shape", "round", "size", "garbage", "other", "replay"]
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, kinds)
    l.run(plan)
    assert l.finish() == 0, l.said("run")
    assert [c["rejected"] for c in l.status(plan)["clients"]] == [0, 0, len(kinds)]
    assert l.log(plan).count("rejected a message of ward-c") == len(kinds)
    for words in (
        "NaN or infinity",
        "came in round 1",
        "must have at most",
        "not JSON",
        "not one of coterie's",
    ):
        assert words in l.log(plan)
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_revoked_client_does_not_count_from_the_next_round_on(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    keys.revoke(l.folder / "keys", "ward-c")
    revoked = l.round(plan)
    assert l.finish() == 0, l.said("run")
    assert "ward-c is revoked" in l.log(plan)
    rounds = {c["name"]: c["rounds"] for c in l.status(plan)["clients"]}
    assert rounds["ward-a"] == rounds["ward-b"] == 8
    assert revoked <= rounds["ward-c"] <= revoked + 2
    wait_for(lambda: "revoked" in l.said("ward-c") or l.processes["ward-c"].poll() is not None, 240)


@pytest.mark.slow
def test_strangers_twins_and_expired_certificates_are_refused(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan)
    shutil.copytree(l.folder / "keys", l.folder / "other-keys")
    l.up()
    l.join("ward-a")
    wait_for(lambda: "the hub is up" in l.said("up"))
    # A key of the same CA that the hub's books do not know.
    keys.issue(l.folder / "other-keys", "ward-b", renew=True)
    l.start(
        "stranger",
        "client",
        "join",
        "--flower",
        l.site("ward-b", plan, "-stranger", keys="../other-keys/nodes/ward-b"),
    )
    wait_for(lambda: "its key is not registered there" in l.said("stranger"), 240)
    # The same identity twice: with the same folder, and with a copy of the keys and another folder.
    twin = l.start("twin", "client", "join", "--flower", l.folder / "ward-a" / "fedu.toml")
    assert twin.wait(240) == 2
    assert "another process is working" in l.said("twin")
    shutil.copytree(l.folder / "keys" / "nodes" / "ward-a", l.folder / "copied")
    wait_for(
        lambda: (
            "SuperNode ID"
            in (l.folder / "ward-a" / "fedu" / "flower" / "supernode.log").read_text()
        ),
        240,
    )
    l.start(
        "thief", "client", "join", "--flower", l.site("ward-a", plan, "-copied", keys="../copied")
    )
    wait_for(lambda: "another process uses it" in l.said("thief"), 240)
    # A certificate that was valid until yesterday.
    keys.issue(
        l.folder / "other-keys",
        "ward-c",
        renew=True,
        days=1,
        now=datetime.now(UTC) - timedelta(days=2),
    )
    old = l.start(
        "expired",
        "client",
        "join",
        "--flower",
        l.site("ward-c", plan, "-expired", keys="../other-keys/nodes/ward-c"),
    )
    assert old.wait(240) == 2
    assert "expired on" in l.said("expired")


@pytest.mark.slow
def test_a_full_disk_stops_only_its_client_and_only_for_a_while(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "pfedme", rounds=6)
    l = lab(plan)
    state = l.folder / "ward-b" / plan.name
    state.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "coterie-test", str(state)],
            capture_output=True,
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        started(l, plan)
        with contextlib.suppress(OSError), (state / "ballast").open("wb") as f:
            while True:
                f.write(bytes(4096))
                f.flush()
        wait_for(lambda: "ward-b cannot answer" in l.log(plan), 240)
        assert "No space left" in l.log(plan)
        assert str(state) not in l.log(plan)  # where things lie on a client is its own business
        time.sleep(5)
        (state / "ballast").unlink()
        assert l.finish() == 0, l.said("run")
        l.assert_equal(plan)
    finally:
        l.stop()
        subprocess.run(["umount", "-l", str(state)], capture_output=True)


@pytest.mark.slow
def test_the_plain_commands_of_flower_do_it_too(lab: Callable[..., Lab], fed: Federation) -> None:
    """As docs/deploy-flower.md has them: no `hub up`, no `client join`, a process per message."""
    plan = make_plan(fed, "lp-proj-1", rounds=2, rules=Rules(patience=120.0, give_up=800.0))
    l = lab(plan)
    hub, nodes, home = l.folder / "hub", l.folder / "keys" / "nodes", l.folder / "home"
    for part in (hub / "plans", l.folder / "app", home):
        part.mkdir(parents=True)
    (l.folder / "app" / "pyproject.toml").write_text(up.APP)
    shutil.copy(l.folder / f"{plan.name}.toml", hub / "plans")
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "lab"\n[superlink.lab]\naddress ='
        f' "127.0.0.1:{l.port}"\nroot-certificates = "{nodes / "hub" / "ca.pem"}"\n'
    )
    commands = str(Path(sys.executable).parent)
    l.env |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "COTERIE_HUB": str(hub),
        "COTERIE_KEYS": str(l.folder / "keys"),
    }
    l.env |= {"PATH": f"{commands}:{l.env['PATH']}", "FLWR_HOME": str(home)}

    def start(label: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with (l.folder / f"{label}.out").open("ab") as f:
            l.processes[label] = subprocess.Popen(
                [*map(str, command)], stdout=f, stderr=f, env=l.env, start_new_session=True
            )
        return l.processes[label]

    certificates = [
        text
        for flag, file in (("ca-cert", "ca.pem"), ("cert", "node.pem"), ("key", "node.key"))
        for text in (f"--ssl-{flag}file", nodes / "hub" / file)
    ]
    start(
        *(
            "superlink",
            "flower-superlink",
            "--host",
            "127.0.0.1",
            "--port",
            str(l.port),
            *certificates,
            "--enable-supernode-auth",
        ),
        *("--database", hub / "superlink.db", "--disable-runtime-dependency-installation"),
    )

    def registered(name: str) -> bool:
        return (
            start(
                "register",
                "flwr",
                "supernode",
                "register",
                nodes / name / "flower.pub",
                "lab",
                "--name",
                name,
            ).wait(60)
            == 0
        )

    for name in NAMES:
        wait_for(lambda name=name: registered(name), 90)
        start(
            *(
                name,
                "flower-supernode",
                "--superlink",
                f"127.0.0.1:{l.port}",
                "--root-certificates",
                nodes / name / "ca.pem",
            ),
            *(
                "--auth-supernode-private-key",
                nodes / name / "flower.key",
                "--host",
                "127.0.0.1",
                "--port",
                str(free_port()),
            ),
            *("--node-config", f'sites="{l.folder / name / f"{plan.name}.toml"}"'),
        )
    assert (
        start(
            "run",
            "flwr",
            "run",
            l.folder / "app",
            "lab",
            "--run-config",
            f'plan="{plan.name}"',
            "--stream",
        ).wait(600)
        == 0
    ), l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_with_nothing_but_its_own_keys_is_told_of_its_clients(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan)
    own = shutil.copytree(l.folder / "keys" / "nodes" / "hub", l.folder / "hub-keys")
    l.start(
        "up",
        "hub",
        "up",
        "--flower",
        "--keys",
        own,
        "--folder",
        l.folder / "hub",
        "--port",
        str(l.port),
    )
    wait_for(lambda: "the hub is up" in l.said("up"), 120)
    for name in NAMES:
        public = l.folder / "keys" / "nodes" / name / "flower.pub"
        assert (
            l.start(
                f"register-{name}", "hub", "register", name, public, "--folder", l.folder / "hub"
            ).wait(120)
            == 0
        ), l.said(f"register-{name}")
    l.join()
    l.run(plan)
    assert l.finish() == 0, l.said("run") + l.said("up")
    l.assert_equal(plan)
