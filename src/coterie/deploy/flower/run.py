"""Flower's processes, started, watched and stopped: a hub's SuperLink behind a gate, a client's
SuperNode with its worker, and runs.

The hub's folder: flower/ (SuperLink's database and logs), app/ (what `flwr run` submits), plans/,
hub.json, and per plan NAME/ (see `Hub`), NAME.log and NAME.progress.json.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked, make_folder, write_json, write_text
from coterie.deploy.flower.supervise import FOLDER, GaveUp, pem
from coterie.deploy.keys import authority as identities
from coterie.deploy.plan import Plan
from coterie.deploy.ports import free_port
from coterie.deploy.site import Site

Say = Callable[[str], None]

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
REASONS = ("code:", "error", "failed", "exception")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FLEET = "/v1/fleet/"
LARGEST = 1 << 30
"""Bytes of one part of a message that the gate lets through."""
LONGEST_PAUSE = 10.0
STOPPED = ("failed", "the run was stopped; it goes on when started again.")
STEADY = 60.0
"""A process that lived this many seconds is started again at once when it dies."""


class Failed(CoterieError):
    """A run or a process that did not come to its end."""

    exit_code = 1


# -- processes -------------------------------------------------------------------------------------


def environment(home: Path, **more: str) -> dict[str, str]:
    """For Flower's processes: nothing is sent to Flower's makers, and its commands are found beside
    this Python.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    flower = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        "PATH": path,
    }
    return {**os.environ, **flower, **more}


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(
            1, signal.SIGKILL
        )  # PR_SET_PDEATHSIG: whoever kills the supervisor must not leave an identity in use


class Child:
    """One supervised process, in a group of its own; its output goes to a file."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        env: dict[str, str],
        log: Path,
        say: Say,
    ) -> None:
        self.name, self.command, self.env, self.log, self.say = name, command, env, log, say
        self.process: subprocess.Popen[bytes] | None = None
        self.began, self.due, self.pause, self.deaths, self.from_here = 0.0, 0.0, 1.0, 0, 0

    def keep(self) -> bool:
        """Start it if it does not run and may; True when it has died since the last look."""
        self._turn_log()
        if self.process is not None and self.process.poll() is None:
            return False
        died = self.process is not None
        if died:
            assert self.process is not None
            code, self.process = self.process.returncode, None
            lived = time.monotonic() - self.began
            self.pause = 1.0 if lived > STEADY else min(2 * self.pause, LONGEST_PAUSE)
            self.deaths = 0 if lived > STEADY else self.deaths + 1
            self.due = time.monotonic() + self.pause
            why = (
                f"was killed by signal {-code}"
                if code < 0
                else f"ended with code {code}{self._last()}"
            )
            self.say(f"{self.name} {why}; it is started again in {self.pause:.0f} s.")
        if self.process is None and time.monotonic() >= self.due:
            self.from_here = self.log.stat().st_size if self.log.is_file() else 0
            with self.log.open("ab") as f:
                options: dict[str, Any] = {
                    "stdin": subprocess.DEVNULL,
                    "stdout": f,
                    "stderr": f,
                    "env": self.env,
                    "start_new_session": True,
                }
                self.process = subprocess.Popen(
                    list(self.command()), preexec_fn=_die_with_parent, **options
                )
            self.began = time.monotonic()
        return died

    def _turn_log(self, most: int = 20_000_000) -> None:
        """Keep the last so many bytes of what it says; the file is written at its end, so it may be
        cut under the writer.
        """
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > most:
                shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
                os.truncate(self.log, 0)
                self.from_here = 0

    def _last(self) -> str:
        """The last line that looks like a reason, of what this process has said."""
        with contextlib.suppress(OSError):
            lines = COLOUR.sub(
                "", self.log.read_bytes()[self.from_here :][-20_000:].decode(errors="replace")
            ).splitlines()
            found = [
                line.strip()
                for line in lines
                if any(w in line.lower() for w in REASONS) and "retrying" not in line
            ]
            if found and "code: 2004" in found[-1]:
                return (
                    " (the hub refuses it: its key is not registered there, or another process uses"
                    " it or did so a minute ago)"
                )
            if found:
                return f" ({found[-1].rpartition('ERROR :')[2].strip()[:160]})"
        return ""

    def tell(self, sign: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)

    def drop(self) -> None:
        """Kill it; it is started again soon."""
        if self.process is not None:
            self.stop(0.0)
            self.process, self.due = None, time.monotonic() + 1.0

    def stop(self, seconds: float = 5.0) -> None:
        """Politely, then not; its children too, should it have died before them."""
        if self.process is None:
            return
        self.tell(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.tell(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


# -- the hub ---------------------------------------------------------------------------------------


class Link:
    """The SuperLink's control interface, as `flwr` uses it.

    It knows no accounts: whoever reaches it may run code, so only this machine does.
    """

    def __init__(self, address: str, ca: Path) -> None:
        from flwr.supercore.control.control_http_client import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self.client = ControlHttpClient.from_server_address(address, False, str(ca), [version])

    @classmethod
    def of(cls, folder: Path) -> Link:
        facts = read_hub(folder)
        return cls(facts["address"], Path(facts["ca"]))

    def nodes(self) -> dict[bytes, int]:
        """Public key → node, of those that are registered."""
        from flwr.proto.control_pb2 import ListNodesRequest

        return {
            bytes(n.public_key): n.node_id
            for n in self.client.ListNodes(ListNodesRequest()).nodes_info
            if n.status != "unregistered"
        }

    def register(self, name: str, key: bytes) -> None:
        from flwr.proto.control_pb2 import RegisterNodeRequest

        self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def unregister(self, node: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self.client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def start(self, app: Path, **config: str) -> int:
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        content = build_fab_from_disk(app)
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        started = self.client.StartRun(
            StartRunRequest(fab=fab, override_config=user_config_to_proto(dict(config)))
        )
        if not started.HasField("run_id"):
            raise Failed(
                "the SuperLink did not start the run; its log is flower/superlink.log in the hub's"
                " folder."
            )
        return int(started.run_id)

    def status(self, run: int) -> tuple[str, str, str]:
        """("pending", "starting", "running" or "finished"; "completed", "failed" or "stopped";
        details).
        """
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self.client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        if run not in found:
            return "finished", "failed", "the SuperLink does not know the run"
        status = found[run].status
        return status.status, status.sub_status, status.details

    def stop(self, run: int) -> None:
        from flwr.proto.control_pb2 import StopRunRequest

        self.client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        self.client.close()


def unreachable() -> tuple[type[Exception], ...]:
    """What the control interface raises when the SuperLink is away or unwell."""
    import httpx

    return (httpx.HTTPError,)


def read_hub(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((folder / "hub.json").read_text())
        return facts
    except (OSError, ValueError):
        raise InvalidInput(
            f"no hub was started in {str(folder)!r}; start one with `coterie hub up --keys KEYS"
            f" --folder {folder}`."
        ) from None


def hub_identity(keys: Path) -> identities.Identity:
    """The hub's own certificate: `keys` is its node folder, or the operator's folder with one that
    was issued with --role hub.
    """
    if not (keys / "nodes.json").is_file():
        found = identities.Identity.load(keys)
    else:
        hubs = [
            i.name
            for i in identities.listed(keys)
            if i.role == "hub" and i.status() in ("valid", "expires soon")
        ]
        here = [name for name in hubs if (keys / "nodes" / name / "node.key").is_file()]
        if len(here) != 1:
            what = (
                f"{len(here)} of them lie there ({', '.join(here)}); give the node folder of one"
                if here
                else "there is none"
            )
            raise InvalidInput(
                f"{str(keys)!r} must hold the keys of one hub (coterie keys issue {keys} hub --role"
                f" hub --host …), but {what}."
            )
        found = identities.Identity.load(keys / "nodes" / here[0])
    if found.role != "hub":
        raise InvalidInput(
            f"the keys in {str(found.folder)!r} are of a {found.role}, but a hub needs keys issued"
            " with --role hub."
        )
    return found


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
        self._link: Link | None = None

    def _inner_keys(self) -> identities.Identity:
        """For the SuperLink's own port, which only this machine sees: the hub's certificate may be
        for another name than 127.0.0.1.
        """
        place = self.home / "inner"
        shutil.rmtree(place, ignore_errors=True)
        identities.init(place, "inner")
        return identities.Identity.load(identities.issue(place, "superlink", role="hub"))

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
            self._link = Link(self.address, self.inner.ca)
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


class Gate:
    """What the network sees of a hub: TLS, and of the SuperLink's interfaces only the one for
    nodes, which asks for their signatures.

    Flower serves all its interfaces on one port, and without its commercial edition anybody who
    reaches it may register nodes and submit code.
    """

    def __init__(
        self, host: str, port: int, identity: identities.Identity, address: str, ca: Path
    ) -> None:
        import uvicorn

        self.address, self.ca = address, ca
        config = uvicorn.Config(
            self._answer,
            host=host,
            port=port,
            ssl_certfile=str(identity.certificate),
            ssl_keyfile=str(identity.key),
            log_level="critical",
            interface="asgi3",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self._client: Any = None

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        import httpx

        async def reply(
            status: int, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
        ) -> None:
            await send({"type": "http.response.start", "status": status, "headers": list(headers)})
            await send({"type": "http.response.body", "body": body})

        path = scope.get("path", "")
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or not path.startswith(FLEET)
            or ".." in path
        ):
            await reply(404)
            return
        body, more = bytearray(), True
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                return
            body += part.get("body", b"")
            more = part.get("more_body", False)
            if len(body) > LARGEST:
                await reply(413)
                return
        if self._client is None:
            import ssl

            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=str(self.ca)),
                timeout=60.0,
                trust_env=False,
            )
        dropped = {b"host", b"connection", b"transfer-encoding", b"content-length"}
        headers = [(k, v) for k, v in scope["headers"] if k.lower() not in dropped]
        try:
            got = await self._client.post(
                f"https://{self.address}{path}", content=bytes(body), headers=headers
            )
        except httpx.HTTPError:
            await reply(503)  # nodes try again
            return
        kept = [
            (k.lower(), v)
            for k, v in got.headers.raw
            if k.lower() not in dropped | {b"content-encoding"}
        ]
        await reply(got.status_code, kept, got.content)

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def open(self) -> None:
        try:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((self.server.config.host, self.server.config.port))
        except OSError as error:
            where = f"{self.server.config.host}:{self.server.config.port}"
            raise InvalidInput(
                f"nobody can listen on {where}: {error.strerror or error}."
            ) from None
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(3.0)


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
        Link.of(folder).register(name, public)
    except unreachable() as error:
        raise Failed(
            f"{name} could not be registered: {type(error).__name__}; is the hub up, and is the key"
            " not registered already?"
        ) from None


# -- runs ------------------------------------------------------------------------------------------


class Run:
    """One plan at a hub that is up, to its end."""

    def __init__(
        self, plan: Path, folder: Path, say: Say, show: Callable[[dict[str, Any]], None]
    ) -> None:
        self.plan, self.folder, self.say, self.show = (
            Plan.from_file(plan),
            folder.absolute(),
            say,
            show,
        )
        if self.plan.peers:
            raise InvalidInput(f"{self.plan.method.name} has no hub; run it with `coterie peer`.")
        if self.plan.name in ("app", "plans", "flower", "locks"):
            raise InvalidInput(
                f"name is {self.plan.name!r}, which is the name of something else in a hub's"
                " folder; choose another."
            )
        self._link, self._facts = Link.of(self.folder), read_hub(self.folder)
        self.file = self.folder / f"{self.plan.name}.progress.json"
        self.log = self.folder / f"{self.plan.name}.log"
        self.read = self.log.stat().st_size if self.log.is_file() else 0

    @property
    def link(self) -> Link:
        """To the SuperLink that is up now: a hub that was started again listens elsewhere, under
        another certificate.
        """
        with contextlib.suppress(CoterieError):
            facts = read_hub(self.folder)
            if facts != self._facts:
                self._link.close()
                self._link, self._facts = Link(facts["address"], Path(facts["ca"])), facts
        return self._link

    def go(self, tries: int = 5, wait: float = 120.0) -> None:
        write_text(self.folder / "plans" / f"{self.plan.name}.toml", self.plan.to_toml())
        left, best = tries, -1
        run = self._attached()
        while True:
            if run is None:
                run = self._start(wait)
            outcome, sentence = self._watch(run, wait)
            if outcome == "finished":
                return
            if outcome == "failed":
                raise Failed(f"{self.plan.name}: {sentence}")
            now = int(self.progress().get("round", -1))
            left, best = (tries, now) if now > best else (left - 1, best)
            if left == 0:
                raise Failed(
                    f"{self.plan.name}: the run breaks again and again ({sentence}); what the last"
                    " round left is safe."
                )
            self.say(
                f"the hub's process ended ({sentence}); starting it again from its last checkpoint."
            )
            run = None
            time.sleep(1.0)

    def progress(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self.file.read_text())
            return found
        return {}

    def _attached(self) -> int | None:
        """The run that is under way, if one is."""
        found = self.progress()
        if (
            found.get("state") in ("starting", "running")
            and _alive(found.get("pid", 0))
            and found.get("run")
        ):
            self.say("this plan is under way already; watching it.")
            return int(found["run"])
        return None

    def _start(self, wait: float) -> int:
        end = time.monotonic() + wait
        while True:
            try:
                self.file.unlink(missing_ok=True)
                return self.link.start(self.folder / "app", plan=self.plan.name)
            except unreachable() as error:
                if time.monotonic() > end:
                    raise Failed(
                        f"the SuperLink does not answer ({type(error).__name__}): is `coterie hub"
                        f" up --folder {self.folder}` running?"
                    ) from None
                time.sleep(1.0)

    def _watch(self, run: int, wait: float) -> tuple[str, str]:
        """("finished", "failed" with the hub's own sentence, or "broken"; sentence)."""
        asked, heard = time.monotonic(), time.monotonic()
        dead_since = 0.0
        try:
            while True:
                time.sleep(0.5)
                now = self.progress()
                self._tell()
                state = now.get("state", "")
                if state in ("finished", "failed", "broken"):
                    return state, now.get("sentence", "")
                if now:
                    self.show(now)
                    if not _alive(now["pid"]):
                        dead_since = dead_since or time.monotonic()
                        if time.monotonic() - dead_since > 2.0 and self.progress().get("state") in (
                            "starting",
                            "running",
                        ):
                            return self._ended(run)
                        continue
                if time.monotonic() - asked > 3.0:
                    asked = time.monotonic()
                    try:
                        status, sub, details = self.link.status(run)
                        heard = time.monotonic()
                        if status == "finished" and self.progress().get("state") not in (
                            "finished",
                            "failed",
                        ):
                            if sub == "stopped":
                                return STOPPED
                            return "broken", details.splitlines()[0][:200] if details else sub
                    except unreachable():
                        if time.monotonic() - heard > wait and not now:
                            return (
                                "failed",
                                (
                                    "the SuperLink does not answer any more: is `coterie hub up`"
                                    " running?"
                                ),
                            )
        except KeyboardInterrupt:
            with contextlib.suppress(*unreachable()):
                self.link.stop(run)
            raise

    def _ended(self, run: int) -> tuple[str, str]:
        """What became of a run whose process is gone."""
        with contextlib.suppress(*unreachable()):
            status, sub, _ = self.link.status(run)
            if (status, sub) == ("finished", "stopped"):
                return STOPPED
            self.link.stop(run)
        return "broken", "it was killed"

    def _tell(self) -> None:
        """New lines of the run's log."""
        with contextlib.suppress(OSError), self.log.open(encoding="utf-8") as f:
            f.seek(self.read)
            for line in f:
                if not line.endswith("\n"):
                    break
                self.read += len(line.encode())
                self.say(line[20:].rstrip("\n"))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def run(
    plan: Path,
    folder: Path,
    *,
    say: Say = print,
    show: Callable[[dict[str, Any]], None] = lambda now: None,
) -> Path:
    """Run a plan at a hub that is up.

    Gives the folder of its results; raises Failed. To be repeated after any failure.
    """
    task = Run(plan, folder, say, show)
    task.go()
    return task.folder / task.plan.name


# -- a client --------------------------------------------------------------------------------------


def join(sites: Sequence[Path], *, say: Say = print, plain: bool = False, tries: int = 40) -> None:
    """Take part, until Ctrl-C or SIGTERM: a SuperNode and its worker, started again whenever they
    die.

    plain: let Flower start a process for every message, with the hub's code, as it does without
    coterie.
    """
    read = [Site.from_file(path.absolute()) for path in sites]
    first = read[0]
    for site in read:
        if (site.name, site.hub, site.keys) != (first.name, first.hub, first.keys):
            raise InvalidInput(
                f"{site.path} has another name, hub or keys than {first.path}; one process can join"
                " as one client only."
            )
        if site.plan.peers:
            raise InvalidInput(
                f"{site.path}: {site.plan.method.name} has no hub; run it with `coterie peer`."
            )
    if not first.hub or not first.hub.rpartition(":")[2].isdigit():
        raise InvalidInput(
            f"{first.path}: hub is {first.hub!r}, but must be like hub.example.org:9092."
        )
    if first.keys is None:
        raise InvalidInput(
            f"{first.path}: keys is missing; it must be the folder that `coterie keys issue` made"
            f" for {first.name!r}."
        )
    identity = identities.Identity.load(first.keys)
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
        _Node(read, identity, say, plain).stay(stop, tries)


class _Node:
    def __init__(
        self, sites: Sequence[Site], identity: identities.Identity, say: Say, plain: bool
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

        said = self.log.read_text(errors="replace") if self.log.is_file() else ""
        if not (found := re.findall(r"SuperNode ID: (\d+)", said)):
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
                        self.identity = identities.Identity.load(
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


def export(path: Path, out: Path) -> list[Path]:
    """Write a client's models, as they are now."""
    from coterie.deploy.client import FILE, Client

    site = Site.from_file(path.absolute())
    if not (site.folder / FILE).is_file():
        raise InvalidInput(
            f"{str(site.folder)!r} holds no models yet: the client has not answered a request of"
            " its hub."
        )
    return Client(site.plan, site.number, site.worker(), site.folder).export(out)


__all__ = ["Failed", "GaveUp", "export", "join", "register", "run", "up"]
