"""Kits of peers: the operator says once who is where, and a site types one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

from coterie.core.errors import InvalidInput
from coterie.deploy import kit
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.kits import write_kits
from coterie.deploy.keys.peer_kits import write_peer_kits
from coterie.deploy.ports import free_ports
from coterie.deploy.site import Site, save_own
from tests.conftest import Cli
from tests.support import peering

TOWN = "".join(
    f'[[peers]]\nname = "{name}"\nplace = "127.0.0.1:{7440 + k}"\n'
    for k, name in enumerate(peering.NAMES)
) + "".join(
    f'[[edges]]\nbetween = ["p{k}", "p{l}"]\nweight = {w}\n' for (k, l), w in peering.EDGES.items()
)


@pytest.fixture
def office(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys", "lab")
    plan = peering.make_plan(peering.little())
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    (tmp_path / "peers.toml").write_text(TOWN)
    for k, name in enumerate(peering.NAMES):
        save_own(peering.little(), k, tmp_path / f"{name}.npz")
    return tmp_path


def made(office: Path) -> list[Path]:
    return write_peer_kits(
        office / "keys", office / "plan.toml", office / "peers.toml", office / "kits"
    )


def test_a_kit_has_a_peers_number_place_and_neighbours(office: Path) -> None:
    kits = made(office)
    assert [path.name for path in kits] == [f"{name}.zip" for name in peering.NAMES]
    for k, path in enumerate(kits):
        assert path.stat().st_mode & 0o777 == 0o600
        data = office / f"p{k}.npz"
        site = Site.from_file(kit.peer_file(path, data, office / f"at-{k}", say=print))
        assert (site.name, site.number) == (f"p{k}", k)
        assert site.listen == f"tls/0.0.0.0:{7440 + k}"
        assert sorted((n.who for n in site.neighbours), key=lambda n: n.number) == (
            peering.neighbours(k)
        )
        assert {n.endpoint for n in site.neighbours} == {
            f"tls/127.0.0.1:{7440 + n.number}" for n in peering.neighbours(k)
        }
        assert site.keys is not None
        assert (site.keys / "node.key").stat().st_mode & 0o777 == 0o600
    issued = {one.name: one for one in keys.listed(office / "keys")}
    assert {one.role for one in issued.values()} == {"peer"}
    assert made(office) == kits, "again: the keys that are there are taken"
    assert {one.name: one.serial for one in keys.listed(office / "keys")} == {
        name: one.serial for name, one in issued.items()
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "p1"', 'name = "p0"', "name of a peer is 'p0'"),
        ('place = "127.0.0.1:7441"', 'place = "here"', "place of 'p1' is 'here'"),
        ('place = "127.0.0.1:7441"', "", "place of 'p1' is None"),
        ('place = "127.0.0.1:7441"', "port = 7441", "the key of [[peers]], 'port'"),
        ('between = ["p0", "p1"]', 'between = ["p0", "p9"]', "between of an edge is ['p0', 'p9']"),
        ('between = ["p0", "p1"]', 'between = ["p0", "p0"]', "between of an edge is ['p0', 'p0']"),
        ('between = ["p0", "p1"]', 'between = ["p2", "p1"]', "is given twice"),
        ("weight = 0.7", "weight = 0", "weight of the edge p1-p3 is 0"),
        (TOWN[TOWN.index("[[edges]]") :], "", "'p0' has no edge"),
        ('[[peers]]\nname = "p4"', '[[edges]]\nname = "p4"', "the key of [[edges]], 'name'"),
    ],
)
def test_a_wrong_file_of_peers_is_refused_before_keys_are_issued(
    office: Path, old: str, new: str, said: str
) -> None:
    assert TOWN.count(old) >= 1
    (office / "peers.toml").write_text(TOWN.replace(old, new, 1))
    with pytest.raises(InvalidInput) as refused:
        made(office)
    assert said in str(refused.value)
    assert keys.listed(office / "keys") == []
    assert not (office / "kits").exists()


def test_somebody_revoked_or_with_keys_for_another_place_gets_no_kit(office: Path) -> None:
    keys.issue(office / "keys", "p1", ["elsewhere.example.org"], role="peer")
    with pytest.raises(InvalidInput, match=r"p1.*certificate is that of a peer for elsewhere"):
        made(office)
    keys.issue(office / "keys", "p1", (), ["127.0.0.1"], role="peer", renew=True)
    kits = made(office)
    keys.revoke(office / "keys", "p2")
    with pytest.raises(InvalidInput, match="'p2' is revoked"):
        made(office)
    (office / "keys" / "nodes" / "p1" / "node.key").unlink()
    assert len(kits) == peering.N


def test_kits_of_a_hub_and_of_peers_are_not_taken_for_each_other(office: Path, cli: Cli) -> None:
    path, data = made(office)[0], office / "p0.npz"
    with pytest.raises(InvalidInput, match="is the kit of a peer: coterie peer"):
        kit.site_file(path, data, say=print)
    with pytest.raises(InvalidInput, match="dfedu has no hub: peers need --peers"):
        write_kits(office / "keys", office / "plan.toml", "h.example.org:1", office / "more")
    (office / "star.toml").write_text(peering.make_plan(peering.little(), "fedavg").to_toml())
    with pytest.raises(InvalidInput, match="fedavg needs a hub"):
        write_peer_kits(
            *(office / "keys", office / "star.toml", office / "peers.toml", office / "more")
        )
    write_kits(office / "keys", office / "star.toml", "h.example.org:1", office / "star")
    with pytest.raises(InvalidInput, match="and not of a peer"):
        kit.peer_file(office / "star" / "p0.zip", data, say=print)
    code, _, said = cli("keys", "kit", str(office / "keys"), str(office / "plan.toml"))
    assert (code, "neither --hub nor --peers" in said) == (2, True)
    code, _, said = cli("peer", str(path))
    assert (code, "must be a kit and the data" in said) == (2, True)


def test_a_kit_without_its_neighbours_is_none(office: Path) -> None:
    path = made(office)[0]
    with zipfile.ZipFile(path) as f:
        files = {name: f.read(name) for name in f.namelist()}
    facts = json.loads(files["kit.json"])
    del facts["peer"]
    files["kit.json"] = json.dumps(facts).encode()
    with zipfile.ZipFile(path, "w") as f:
        for name, one in files.items():
            f.writestr(name, one)
    with pytest.raises(InvalidInput, match=r"kit\.json or plan\.toml is damaged"):
        kit.read(path)


@pytest.mark.slow
def test_peers_that_start_from_kits_train_together(office: Path) -> None:
    town = TOWN
    for k, port in enumerate(free_ports(peering.N)):
        town = town.replace(f":{7440 + k}", f":{port}")
    (office / "peers.toml").write_text(town)
    kits = made(office)
    running = []
    for k, path in enumerate(kits):
        command = [sys.executable, "-m", "coterie", "peer", str(path), str(office / f"p{k}.npz")]
        log = (office / f"p{k}.log").open("wb")
        running.append(subprocess.Popen(command, cwd=office, env=os.environ, stderr=log))
    try:
        codes = [process.wait(300) for process in running]
    finally:
        for process in running:
            process.kill()
    logs = [(office / f"p{k}.log").read_text() for k in range(peering.N)]
    assert codes == [0] * peering.N, logs
    for k in range(peering.N):
        assert (office / f"p{k}-ring" / "state" / "models").is_dir(), logs[k]
