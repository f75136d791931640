"""Certificates of a public key infrastructure of the user's own, made here with another tool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.hub import hub_identity
from coterie.deploy.keys.identity import NAMES, NodeIdentity
from coterie.deploy.keys.own import bring
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh.gate import Gate, enrol
from coterie.deploy.zenoh.net import Answered, Net, Seen
from coterie.deploy.zenoh.spokes import HUB, Enrolled, Spoke, Unreachable
from tests.deploy.test_gate import answering, came

Issue = Callable[..., tuple[Path, Path, Path]]
CONFIG = """[ca]
default_ca = own
[own]
database = {folder}/index.txt
crlnumber = {folder}/number
default_md = sha256
default_crl_days = 30
"""


class Own:
    """A root, and below it the CA that issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssl("req", "-x509", *self.new("root"), "-days", "99", "-subj", "/CN=Root")
        self.ca = self.issued("ca", "basicConstraints=critical,CA:TRUE", by="root")
        (folder / "openssl.cnf").write_text(CONFIG.format(folder=folder))
        (folder / "index.txt").touch()
        (folder / "number").write_text("05\n")

    def ssl(self, *arguments: str | Path) -> None:
        command = ["openssl", *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True)

    def new(self, name: str) -> tuple[str | Path, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        return *curve, "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem"

    def issued(self, name: str, *extensions: str, by: str = "ca") -> Path:
        path, own = self.folder / f"{name}.pem", self.folder / f"{name}.ext"
        own.write_text("\n".join(("subjectAltName=IP:127.0.0.1,DNS:localhost", *extensions)))
        self.ssl("req", *self.new(name), "-subj", f"/O=Clinic/CN={name}")
        signing = ("-CA", self.folder / f"{by}.pem", "-CAkey", self.folder / f"{by}.key")
        request = path.rename(path.with_suffix(".csr"))
        more = ("-days", "60", "-extfile", own, "-CAcreateserial", "-out", path)
        self.ssl("x509", "-req", "-in", request, *signing, *more)
        return path

    def revoked(self, *names: str) -> Path:
        own = ("-config", self.folder / "openssl.cnf", "-cert", self.ca)
        own += ("-keyfile", self.folder / "ca.key")
        for name in names:
            self.ssl("ca", *own, "-revoke", self.folder / f"{name}.pem")
        self.ssl("ca", *own, "-gencrl", "-out", self.folder / "list.pem")
        return self.folder / "list.pem"

    def brought(self, name: str, role: str = "client", crl: Path | None = None) -> NodeIdentity:
        pair = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        return bring(self.folder / "nodes" / name, *pair, self.ca, role, crl=crl)


CLIENT, BOTH = "extendedKeyUsage=clientAuth", "extendedKeyUsage=serverAuth,clientAuth"


@pytest.fixture
def own(tmp_path: Path) -> Own:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl, the other tool")
    return Own(tmp_path)


def test_it_is_used_as_it_is_and_roles_are_kept(own: Own) -> None:
    """A gate and two clients with certificates of an intermediate CA; a client is no hub."""
    for name, use in (("hub", BOTH), ("ward-a", CLIENT), ("ward-b", CLIENT)):
        own.issued(name, use)
    hub = own.brought("hub", "hub")
    clients = {name: own.brought(name) for name in ("ward-a", "ward-b")}
    assert hub_identity(hub.folder).name == "hub"
    assert {p.stat().st_mode & 0o777 for p in hub.folder.iterdir()} == {0o600}
    port, folder = free_port(), own.folder / "hub-folder"
    folder.mkdir()
    enrol(folder, "plan", Enrolled(tuple(clients), 1000))
    gate = Gate(hub.folder, folder, "127.0.0.1", port, print)
    gate.look()
    place = f"127.0.0.1:{port}"
    try:
        with (
            Net(Spoke("plan", HUB, place, tuple(clients), hub), 1000) as asks,
            Net(Spoke("plan", "ward-a", place, (HUB,), clients["ward-a"]), 1000) as a,
        ):
            came(asks, lambda event: event == Seen("ward-a", True))
            with answering(a):
                asks.ask("ward-a", "q", b"?", 20.0)
                answer = came(asks, lambda event: isinstance(event, Answered))
                assert answer.payload == b"from ward-a?"
        # The list has no names: those who are refused are named beside it.
        (hub.folder / NAMES).write_text("ward-b  # stolen\n\n")
        gate.look()
        assert gate.plans() == {"plan": Enrolled(("ward-a",), 1000)}
        gate.close()
        false = Gate(hub.folder, folder, "127.0.0.1", port, print)
        false.identity = clients["ward-b"]
        false.look()
        gate = false
        spoke = Spoke("plan", "ward-a", place, (HUB,), clients["ward-a"])
        with pytest.raises(Unreachable), Net(spoke, 1000):
            pass
    finally:
        gate.close()


def test_what_it_is_not_for_is_refused(own: Own) -> None:
    own.issued("ward-a", CLIENT)
    own.issued("ward-b", "extendedKeyUsage=serverAuth")
    own.issued("ward-c", CLIENT, "keyUsage=keyAgreement")
    own.issued("ward-d", CLIENT, by="root")
    own.issued("Ward E", CLIENT)
    own.issued("anything")
    with pytest.raises(InvalidInput, match=r"ward-a.pem is not for serverAuth .* a hub needs"):
        own.brought("ward-a", "hub")
    with pytest.raises(InvalidInput, match=r"ward-b.pem is not for clientAuth"):
        own.brought("ward-b")
    with pytest.raises(InvalidInput, match=r"ward-c.pem is not for signatures"):
        own.brought("ward-c")
    with pytest.raises(InvalidInput, match=r"ward-d.pem was not issued by the CA"):
        own.brought("ward-d")
    with pytest.raises(InvalidInput, match=r"the common name in .* is 'Ward E'"):
        own.brought("Ward E")
    pair = own.folder / "ward-a.pem", own.folder / "ca.key"
    with pytest.raises(InvalidInput, match=r"ca\.key is not the key of"):
        bring(own.folder / "x", *pair, own.ca, "client")
    assert not (own.folder / "nodes").exists() or not [*(own.folder / "nodes").iterdir()]
    assert own.brought("anything", "peer").role == "peer"  # what says nothing is for everything


def test_its_lists_are_read(own: Own) -> None:
    own.issued("ward-a", CLIENT)
    own.issued("ward-b", CLIENT)
    early = own.revoked()
    who = own.brought("ward-a", crl=early)
    late = own.revoked("ward-a", "ward-b").read_bytes()
    mine = who.revocations()
    assert mine.offer(late)
    assert mine.refuses(who.serial)
    with pytest.raises(InvalidInput, match="is revoked"):
        NodeIdentity.load(who.folder)
    with pytest.raises(InvalidInput, match="is revoked"):
        own.brought("ward-b", crl=own.folder / "list.pem")
