"""What bench/wire.py starts: a hub and its clients over Zenoh, or over Flower."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT, PLAN = 7447, "wire"


def address(k: int) -> str:
    return f"10.78.0.{k + 1}"


class Crew:
    """Commands, each in a namespace and a process group of its own, its output in a log."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names = folder, names
        self.running: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def start(self, k: int, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A command of coterie."""
        return self.begin(k, log, sys.executable, "-m", "coterie", *arguments)

    def done(self, k: int, log: str, *command: str, tries: int = 1) -> None:
        """A command that ends soon; again until it succeeds."""
        while self.begin(k, log, *command).wait():
            tries -= 1
            if not tries:
                raise SystemExit((self.folder / f"{log}.log").read_text()[-2000:])
            time.sleep(1.0)
            self.running.pop()
        self.running.pop()

    def begin(self, k: int, log: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[k], *command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + 15
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def wait(self, what: str, until: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end or any(p.poll() for p in self.running):
                logs = sorted(self.folder.glob("*.log"))
                tails = "\n".join(f"{p.name}: {p.read_text()[-800:]}" for p in logs)
                raise SystemExit(f"{what} did not come.\n{tails}")
            time.sleep(0.02)


def site(folder: Path, name: str, more: str) -> str:
    """A participant's config; its path."""
    path = folder / f"{name}.site.toml"
    path.write_text(
        f'plan = "plan.toml"\nname = "{name}"\nfolder = "{name}-state"\n'
        f'keys = "keys/nodes/{name}"\n{more}'
    )
    return str(path)


def start_zenoh(
    crew: Crew, clients: int, counted: Callable[[int], Any], look: float = 21.0
) -> tuple[Path, float]:
    """The folder of the hub's run, and bytes per client and second while nobody talks.

    The gate opens anew when it hears of the plan: clients come after that.
    """
    home = crew.folder / "hub"
    where = ("--host", address(clients), "--port", str(PORT))
    crew.start(clients, "hub", "hub", "up", "--keys", "keys", "--folder", str(home), *where)
    crew.wait("the hub", (home / "hub.json").is_file, 120)
    crew.start(clients, "run", "hub", "run", "plan.toml", "--folder", str(home))
    log = lambda name: (crew.folder / f"{name}.log").read_text()
    crew.wait("the plan", lambda: "may take part" in log("hub"), 120)
    rate = 0.0
    for k in range(clients):
        if k == clients - 1 and look:
            rate = idle(crew, k, counted, look)
        more = f'hub = "{address(clients)}:{PORT}"\n[data]\npath = "site-{k}.npz"\n'
        crew.start(k, f"site-{k}", "client", "join", site(crew.folder, f"site-{k}", more))
    return home / PLAN, rate


def idle(crew: Crew, clients: int, counted: Callable[[int], Any], look: float) -> float:
    """Bytes per client and second when these have answered in round 0, and wait for another."""
    states = [crew.folder / f"site-{k}-state" / "client.safetensors" for k in range(clients)]
    crew.wait("round 0", lambda: all(path.is_file() for path in states), 300)
    time.sleep(3.0)
    before = counted(clients)
    time.sleep(look)
    return float(sum(counted(clients) - before) / look / clients)


def start_flower(
    crew: Crew, clients: int, counted: Callable[[int], Any], look: float = 10.0
) -> tuple[Path, float]:
    """The folder of the hub's run, and bytes per client and second before it began."""
    home, keys, where = (
        crew.folder / "hub",
        crew.folder / "keys/nodes",
        f"{address(clients)}:{PORT}",
    )
    page = Path(__file__).parents[1] / "docs" / "deploy-flower.md"
    project, config = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    for path, text in (("app/pyproject.toml", project), ("flwr/config.toml", config)):
        (crew.folder / path).parent.mkdir()
        text = text.replace("127.0.0.1:9092", where).replace("/path/of/keys/nodes", str(keys))
        (crew.folder / path).write_text(text)
    home.mkdir()
    files = {"ca-cert": "ca.pem", "cert": "node.pem", "key": "node.key"}
    pairs = [(f"--ssl-{flag}file", str(keys / "hub" / file)) for flag, file in files.items()]
    crew.begin(
        *(clients, "hub", "flower-superlink", "--host", address(clients), "--port", str(PORT)),
        *(text for pair in pairs for text in pair),
        *("--enable-supernode-auth", "--database", str(crew.folder / "superlink.db")),
        "--disable-runtime-dependency-installation",
    )
    for k in range(clients):
        name, register = f"site-{k}", ("flwr", "supernode", "register")
        key = str(keys / name / "flower.pub")
        crew.done(clients, "register", *register, key, "lab", "--name", name, tries=60)
        path = site(crew.folder, name, f'[data]\npath = "{name}.npz"\n')
        crew.begin(
            *(k, name, "flower-supernode", "--superlink", where, "--port", str(PORT + 1)),
            *("--host", "127.0.0.1", "--root-certificates", str(keys / name / "ca.pem")),
            *("--auth-supernode-private-key", str(keys / name / "flower.key")),
            *("--node-config", f'sites="{path}"'),
        )
    # Clients that ask for work at a steady rate have arrived: two looks that agree.
    rate, last, end = 0.0, -1.0, time.monotonic() + 180
    while rate < 100 * clients or abs(rate - last) > 0.1 * rate:
        if time.monotonic() > end:
            raise SystemExit("the clients did not come.")
        before, began, last = counted(clients), time.monotonic(), rate
        time.sleep(look)
        rate = sum(counted(clients) - before) / (time.monotonic() - began)
    paths = f'plan="{crew.folder / "plan.toml"}" folder="{home}"'
    crew.done(clients, "run", "flwr", "run", "app", "lab", "--run-config", paths)
    return home / PLAN, rate / clients
