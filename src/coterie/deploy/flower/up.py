"""A hub that is up: the SuperLink behind a gate, and who may take part.

The hub's folder: flower/ (SuperLink's database and logs), app/ (what `flwr run` submits), plans/,
hub.json, and per plan NAME/ (see `Hub`), NAME.log and NAME.progress.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder, write_json, write_text
from coterie.deploy.flower.gate import Gate
from coterie.deploy.flower.link import SuperLinkControl, unreachable
from coterie.deploy.flower.members import pem
from coterie.deploy.flower.processes import Child, Failed, Say, environment, until_stopped
from coterie.deploy.flower.supervise import FOLDER
from coterie.deploy.keys import authority as identities
from coterie.deploy.keys.hub import hub_identity
from coterie.deploy.ports import free_port

APP = f"""\
[project]
name = "coterie-app"
version = "{__version__}"
description = "Every method of coterie as one Flower app; the apps are those that are installed."
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "coterie"

[tool.flwr.app.components]
serverapp = "coterie.deploy.flower.supervise:server_app"
clientapp = "coterie.deploy.flower.supervise:client_app"

[tool.flwr.app.config]
plan = ""
"""


class Hull:
    """A hub that is up: the SuperLink, reachable from this machine only, and the gate through which
    clients come.
    """

    def __init__(self, keys: Path, folder: Path, host: str, port: int, say: Say) -> None:
        self.keys, self.folder, self.host, self.port, self.say = (
            keys.absolute(),
            folder.absolute(),
            host,
            port,
            say,
        )
        if not 1 <= port <= 65535:
            raise InvalidInput(f"port is {port}, but must be from 1 to 65535.")
        self.identity = hub_identity(self.keys)
        self.home = self.folder / "flower"
        for part in (self.folder, self.home, self.folder / "app", self.folder / "plans"):
            make_folder(part, force=True)
        write_text(self.folder / "app" / "pyproject.toml", APP)
        self.inner = self._inner_keys()
        self.address = f"127.0.0.1:{free_port()}"
        write_text(self.home / "config.toml", self._flower_config())
        self.facts = {
            "keys": str(self.keys),
            "address": self.address,
            "ca": str(self.inner.ca),
            "public": f"{host}:{port}",
            "pid": os.getpid(),
        }
        self.child = Child(
            "the SuperLink",
            self._command,
            environment(self.home, **{FOLDER: str(self.folder)}),
            self.home / "superlink.log",
            say,
        )
        self._books: Any = None
        self._link: SuperLinkControl | None = None

    def _inner_keys(self) -> identities.NodeIdentity:
        """For the SuperLink's own port, which only this machine sees: the hub's certificate may be
        for another name than 127.0.0.1.
        """
        folder = self.home / "inner"
        shutil.rmtree(folder, ignore_errors=True)
        identities.init(folder, "inner")
        return identities.NodeIdentity.load(identities.issue(folder, "superlink", role="hub"))

    def _flower_config(self) -> str:
        """So that plain `flwr` finds this SuperLink: FLWR_HOME=…/flower flwr list."""
        return (
            '[superlink]\ndefault = "hub"\n\n[superlink.hub]\naddress ='
            f' "{self.address}"\nroot-certificates = {json.dumps(str(self.inner.ca))}\n'
        )

    def _command(self) -> list[str]:
        host, port = self.address.split(":")
        files = {
            "--ssl-ca-certfile": self.inner.ca,
            "--ssl-certfile": self.inner.certificate,
            "--ssl-keyfile": self.inner.key,
        }
        return [
            "flower-superlink",
            *(text for flag, path in files.items() for text in (flag, str(path))),
            *("--host", host, "--port", port, "--database", str(self.home / "superlink.db")),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        ]

    def stay(self, stop: threading.Event) -> None:
        """Until told to stop."""
        gate = Gate(self.host, self.port, self.identity, self.address, self.inner.ca)
        with locked(self.home):
            gate.open()
            try:
                write_json(self.folder / "hub.json", self.facts)
                ready, looked = False, 0.0
                while not stop.wait(0.2):
                    if self.child.keep():
                        ready = False
                        self._end_orphans()
                    if self.child.deaths >= 8:
                        raise Failed(
                            "the SuperLink dies again and again; its log is flower/superlink.log in"
                            " the hub's folder."
                        )
                    if not gate.alive:
                        raise Failed(f"nobody can listen on {self.host}:{self.port} any more.")
                    if self.child.process is not None and time.monotonic() - looked > (
                        5.0 if ready else 0.5
                    ):
                        looked = time.monotonic()
                        with contextlib.suppress(*unreachable()):
                            self._sync()
                            if not ready:
                                ready = True
                                self.say(f"the hub is up at {self.host}:{self.port}.")
            finally:
                gate.close()
                self.child.stop()
                self._end_orphans()

    def _end_orphans(self) -> None:
        """A ServerApp that has lost its SuperLink takes a minute to see it, and keeps its plan
        locked until then.
        """
        for path in self.folder.glob("*.progress.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                pid = int(json.loads(path.read_text())["pid"])
                if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _sync(self) -> None:
        """Register who has valid keys, unregister who has not.

        Without the operator's books, `coterie hub register` does the first.
        """
        if self._link is None:
            self._link = SuperLinkControl(self.address, self.inner.ca)
        if not (self.keys / "nodes.json").is_file():
            self._link.nodes()
            return
        allowed = {
            pem(i.flower_key): i.name
            for i in identities.listed(self.keys)
            if i.role != "hub" and i.status() in ("valid", "expires soon")
        }
        known = self._link.nodes()
        for key, name in allowed.items():
            if key not in known:
                self._link.register(name, key)
                self.say(f"{name} may take part.")
        for key, node in known.items():
            if key not in allowed:
                self._link.unregister(node)
                self.say("a node whose keys are revoked, renewed or expired is no longer let in.")


def up(
    keys: Path, folder: Path, host: str = "127.0.0.1", port: int = 9092, *, say: Say = print
) -> None:
    """Bring a hub up and keep it up until Ctrl-C or SIGTERM."""
    hull = Hull(keys, folder, host, port, say)
    with until_stopped() as stop:
        hull.stay(stop)


def register(folder: Path, name: str, key: Path) -> None:
    """Let a node in, at a hub that does not have the operator's books."""
    try:
        public = pem(key.read_text())
    except (OSError, ValueError):
        raise InvalidInput(
            f"{str(key)!r} is not a public key as `coterie keys issue` writes it (flower.pub)."
        ) from None
    try:
        SuperLinkControl.of(folder).register(name, public)
    except unreachable() as error:
        raise Failed(
            f"{name} could not be registered: {type(error).__name__}; is the hub up, and is the key"
            " not registered already?"
        ) from None
