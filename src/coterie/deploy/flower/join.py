"""A client: Flower's SuperNode with its worker, started again whenever they die."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder
from coterie.deploy.flower.link import unreachable
from coterie.deploy.flower.processes import Child, Failed, Say, environment, until_stopped
from coterie.deploy.keys import authority as identities
from coterie.deploy.ports import free_port
from coterie.deploy.site import Site
from coterie.deploy.sites import of_one_client


def join(sites: Sequence[Path], *, say: Say = print, plain: bool = False, tries: int = 40) -> None:
    """Take part, until Ctrl-C or SIGTERM: a SuperNode and its worker, started again whenever they
    die.

    plain: let Flower start a process for every message, with the hub's code, as it does without
    coterie.
    """
    read = of_one_client(sites)
    first = read[0]
    if not first.hub or not first.hub.rpartition(":")[2].isdigit():
        raise InvalidInput(
            f"{first.path}: hub is {first.hub!r}, but must be like hub.example.org:9092."
        )
    if first.keys is None:
        raise InvalidInput(
            f"{first.path}: keys is missing; it must be the folder that `coterie keys issue` made"
            f" for {first.name!r}."
        )
    identity = identities.NodeIdentity.load(first.keys)
    if identity.name != first.name:
        raise InvalidInput(
            f"{first.path}: name is {first.name!r}, but the keys in {str(first.keys)!r} are those"
            f" of {identity.name!r}."
        )
    with contextlib.ExitStack() as held, until_stopped() as stop:
        for site in read:
            make_folder(site.folder, force=True)
            site.load_data()  # what is wrong with the data is said now, and not in the first round
            held.enter_context(locked(site.folder))
        with contextlib.suppress(OSError):  # keys that cannot be written to cannot be locked
            held.enter_context(
                locked(first.keys)
            )  # one identity, one process, whatever the folders
        Node(read, identity, say, plain).stay(stop, tries)


class Node:
    def __init__(
        self, sites: Sequence[Site], identity: identities.NodeIdentity, say: Say, plain: bool
    ) -> None:
        self.sites, self.identity, self.say, self.plain = sites, identity, say, plain
        home = sites[0].folder / "flower"
        home.mkdir(exist_ok=True)
        self.secret = home / "secret"
        self.secret.unlink(missing_ok=True)
        with os.fdopen(
            os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as f:
            f.write(os.urandom(32))
        self.port = free_port()
        # Looks cost the hub: where there are few clients each may look often, where there are many
        # none more than Flower's own do.
        env = environment(
            home, COTERIE_LOOK=str(min(3.0, max(0.5, max(site.plan.size for site in sites) / 50)))
        )
        self.log = home / "supernode.log"
        self.children = [Child("the SuperNode", self._supernode, env, self.log, say)]
        if not plain:
            self.children.append(Child("the worker", self._worker, env, home / "worker.log", say))

    @property
    def _paths(self) -> str:
        return os.pathsep.join(str(site.path) for site in self.sites)

    def _supernode(self) -> list[str]:
        isolation = (
            []
            if self.plain
            else ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]
        )
        self._let_go()
        # As a file and not as a module: a SuperNode need not spend seconds on importing JAX.
        program = (
            ["flower-supernode"]
            if self.plain
            else [sys.executable, "-P", str(Path(__file__).with_name("node.py")), "supernode"]
        )
        return [
            *program,
            *("--superlink", self.sites[0].hub, "--root-certificates", str(self.identity.ca)),
            *("--auth-supernode-private-key", str(self.identity.flower_key)),
            *("--host", "127.0.0.1", "--port", str(self.port), *isolation),
            *("--node-config", f"sites={json.dumps(self._paths)}"),
        ]

    def _let_go(self) -> None:
        """Tell the hub that the SuperNode that ran here is gone: else it keeps its place, and
        refuses the next one, for a minute.
        """
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        log = self.log.read_text(errors="replace") if self.log.is_file() else ""
        if not (found := re.findall(r"SuperNode ID: (\d+)", log)):
            return
        key: Any = load_ssh_private_key(self.identity.flower_key.read_bytes(), None)
        signing: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ]
        with (
            contextlib.suppress(*unreachable()),
            FleetHttpClient.from_server_address(
                self.sites[0].hub, False, str(self.identity.ca), signing
            ) as hub,
        ):
            hub.DeactivateNode(DeactivateNodeRequest(node_id=int(found[-1])))

    def _worker(self) -> list[str]:
        worker = ["-m", "coterie.deploy.flower.node", "--address", f"127.0.0.1:{self.port}"]
        return [sys.executable, *worker, "--secret", str(self.secret), "--sites", self._paths]

    def stay(self, stop: threading.Event, tries: int) -> None:
        self.say(f"{self.sites[0].name} joins the hub {self.sites[0].hub}.")
        try:
            while not stop.wait(0.2):
                for child in self.children:
                    if child.keep():
                        self.identity = identities.NodeIdentity.load(
                            self.identity.folder
                        )  # it may be revoked or expired by now
                        for other in self.children:
                            if other is not child:
                                # it would wait for ever for what the dead one had in hands
                                other.drop()
                    if child.deaths >= tries:
                        raise Failed(
                            f"{child.name} dies again and again; its log is flower/{child.log.name}"
                            " in this client's folder."
                        )
        finally:
            for child in self.children:
                child.tell(signal.SIGTERM)
            for child in self.children:
                child.stop()
