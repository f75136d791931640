"""A kit's plan runs nothing at a site that has not allowed it."""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("zenoh")

from coterie.cli import peer as peer_command
from coterie.core.errors import InvalidInput
from coterie.deploy import kit
from coterie.deploy.keys import authority as keys
from coterie.deploy.site import Site
from coterie.models.torch import spec
from tests.conftest import Cli

PLAN = """
name = "wards"
clients = ["ward-a", "ward-b"]
[problem]
task = "classification"
inputs = [2]
labels = ["no", "yes"]
[model]
name = "torch"
module = "evil.deep:make"
[method]
name = "{method}"
"""
OF_PEER = {"number": 0, "listen": "tls/0.0.0.0:7447", "neighbours": []}
KINDS: dict[str, tuple[str, dict[str, Any], Callable[..., Path]]] = {
    "client": ("fedavg", {"hub": "hub.example.org:9092"}, kit.site_file),
    "peer": ("dfedu", {"peer": OF_PEER}, kit.peer_file),
}


class Office:
    """A kit whose plan names a module that lies on the path, and stops whoever imports it."""

    def __init__(self, folder: Path, kind: str) -> None:
        method, self.where, self.unpack = KINDS[kind]
        self.kind, self.folder, self.kit = kind, folder, folder / "ward-a.zip"
        (folder / "evil").mkdir()
        (folder / "evil" / "__init__.py").write_text("raise SystemExit('it was imported')")
        (folder / "plan.toml").write_text(PLAN.format(method=method))
        (folder / "data.csv").touch()
        keys.init(folder / "keys", "lab")
        self.node = keys.issue(folder / "keys", "ward-a", role=kind)
        self.pack(self.where)

    def pack(self, where: dict[str, Any]) -> None:
        kit.pack(self.kit, self.node, self.folder / "plan.toml", where)

    def site(self, *allowed: str) -> Path:
        data, here = self.folder / "data.csv", self.folder / "here"
        return self.unpack(self.kit, data, here, allowed=allowed, say=print)


@pytest.fixture(params=KINDS)
def office(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Office:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(spec, "need_torch", lambda: None)
    return Office(tmp_path, request.param)


@pytest.mark.parametrize("allowed", [(), ("planted", "evi", "evil.deep.er")])
def test_no_module_is_imported_that_the_site_does_not_allow(
    office: Office, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        office.site(*allowed)
    said = str(refused.value)
    assert said.startswith(f"the plan in {str(office.kit)!r}: the plan's model.module is 'evil.")
    assert said.endswith("if it is to be trusted: --allow-module evil.deep.")
    assert "evil" not in sys.modules
    assert not (office.folder / "here").exists()


def test_the_command_line_neither(
    office: Office, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(office.folder)
    command = ["peer"] if office.kind == "peer" else ["client", "join"]
    code, _, said = cli(*command, "ward-a.zip", "data.csv")
    assert code == 2
    assert "the plan in 'ward-a.zip'" in said
    assert "--allow-module evil.deep" in said
    assert not (office.folder / "ward-a-wards").exists()


def test_what_is_allowed_once_stays_allowed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="it was imported"):
        office.site("evil")
    monkeypatch.setattr(kit.Plan, "from_config", classmethod(lambda cls, config: None))
    file = office.site("evil")
    assert tomllib.loads(file.read_text())["modules"] == ["evil"]
    assert office.site() == file
    assert office.site("more.nets", "evil") == file
    assert tomllib.loads(file.read_text())["modules"] == ["evil", "more.nets"]
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(office.folder))
    file.write_text(file.read_text().replace('"evil"', '"good"'))  # by hand
    with pytest.raises(InvalidInput, match=r"model\.module is 'evil.deep:make'"):
        office.site()
    with pytest.raises(InvalidInput, match=r"model\.module is 'evil.deep:make'"):
        Site.from_file(file)
    file.write_text('modules = "all"\n')
    with pytest.raises(InvalidInput, match="toml: modules is 'all', but must be a list of names"):
        office.site()


@pytest.mark.parametrize("name", ["", ".evil", "a-b", "wards."])
def test_what_is_allowed_must_be_a_module(office: Office, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"--allow-module holds .*but must be names of Python"):
        office.site(name)


def test_a_kit_does_not_allow_anything_itself(tmp_path: Path) -> None:
    """Nor does it put other words of a config into the peer's own, or choose a folder."""
    office = Office(tmp_path, "peer")
    for key, value in {"modules": ["evil"], "folder": "/", "data": {}}.items():
        office.pack({"peer": {**OF_PEER, key: value}})
        with pytest.raises(InvalidInput, match=f"it says '{key}' of a peer, which belongs in no"):
            office.site()
    facts = json.loads(kit.read(_renamed(office, "ward-a")).files["kit.json"])
    assert facts["name"] == "ward-a"
    for name in ("../ward-a", "/ward-a", "", "ward a"):
        with pytest.raises(InvalidInput, match="which is the name of nobody"):
            kit.read(_renamed(office, name))


def _renamed(office: Office, name: str) -> Path:
    office.pack(office.where)
    with zipfile.ZipFile(office.kit) as f:
        files = {one: f.read(one) for one in f.namelist()}
    files["kit.json"] = json.dumps(json.loads(files["kit.json"]) | {"name": name}).encode()
    with zipfile.ZipFile(office.kit, "w") as f:
        for one, data in files.items():
            f.writestr(one, data)
    return office.kit


def test_a_plan_in_a_kit_is_named_and_not_a_temporary_file(tmp_path: Path) -> None:
    office = Office(tmp_path, "client")
    for text, said in (
        ("name = ", "is not valid TOML"),
        ("name = 3", "name is 3, but must be lower-case"),
    ):
        (tmp_path / "plan.toml").write_text(text.format(method="fedavg"))
        office.pack(office.where)
        with pytest.raises(InvalidInput) as refused:
            office.unpack(office.kit, tmp_path / "data.csv", None, say=print)
        assert str(refused.value).startswith(f"the plan in {str(office.kit)!r}")
        assert said in str(refused.value)


def test_modules_are_for_kits(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "site.toml").touch()
    code, _, said = cli("client", "join", str(tmp_path / "site.toml"), "--allow-module", "a")
    assert (code, "--allow-module are for kits" in said) == (2, True)
    with pytest.raises(InvalidInput, match="'--allow-module a', which is for kits"):
        peer_command._config([], tmp_path / "peer.toml", None, ["a"])
