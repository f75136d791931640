"""Predicted and measured time of rounds: real processes in network namespaces, one per participant,
joined by links with a latency and a bandwidth.

python bench/network.py                  # as root; some minutes
python bench/network.py peers --hidden 512 --rounds 8

Every participant has a namespace and a pair of veth devices to a router's namespace. Bandwidth is
the kernel's own (`tc … tbf`, both ways). Latency is a line that every packet between participants
goes through once, in the router's namespace: a TUN device whose packets are held for so long and
put back (`delay-line` below), because the kernel here lacks netem. What runs is `coterie peer`
(Zenoh over TLS with certificates on both sides), with a probe that notes when a round ends.

Every setting has a federation of its own, started on that network: what TCP knows of a link depends
on what went before. Rounds without latency and limit, before and after each setting, give what a
round costs besides the network on this machine; with the time of a gradient (measured apart) that
is all the prediction is told. The first rounds, which compile, are left out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
ROUTER, PREFIX = "cotr", "cot"
WARM_UP = 2
"""Rounds that are not measured."""
MBIT = 125_000.0


class Setting(NamedTuple):
    """A network: one way in seconds, bytes per second of every participant (each way; None: no
    limit).
    """

    latency: float
    bandwidth: float | None


FREE = Setting(0.0, None)
SETTINGS = (
    Setting(0.02, 10 * MBIT),
    Setting(0.1, 10 * MBIT),
    Setting(0.05, 2 * MBIT),
    Setting(0.02, 1 * MBIT),
    Setting(0.1, None),
)


# -- the network -----------------------------------------------------------------------------------


def sh(command: str, *, check: bool = True) -> None:
    subprocess.run(command.split(), check=check, capture_output=not check)


def inside(namespace: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *command]


def address(k: int) -> str:
    return f"10.77.{k}.2"


def delay_line() -> None:
    """Hold every packet that is routed to this TUN device for so long as the last line of the input
    says, then put it back.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        device, 0x400454CA, struct.pack("16sH", b"delay0", 0x0001 | 0x1000)
    )  # TUNSETIFF: IFF_TUN, IFF_NO_PI
    os.nice(-20)
    print("up", flush=True)
    seconds = 0.0
    line: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        now = time.monotonic()
        while line and line[0][0] <= now:
            with contextlib.suppress(OSError):
                os.write(device, line.popleft()[1])
        wait = max(0.0, line[0][0] - time.monotonic()) if line else None
        ready = select.select([device, sys.stdin], [], [], wait)[0]
        if sys.stdin in ready:
            told = sys.stdin.readline()
            if not told:
                return
            seconds = float(told)
        if device in ready:
            due = time.monotonic() + seconds
            with contextlib.suppress(BlockingIOError):
                while True:
                    line.append((due, os.read(device, 65536)))


class Lab:
    """Namespaces for so many participants. `with Lab(n) as lab: lab.shape(setting)`."""

    def __init__(self, count: int) -> None:
        self.names = [f"{PREFIX}{k}" for k in range(count)]

    def __enter__(self) -> Lab:
        self._remove()
        for name in (ROUTER, *self.names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for key in (
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ):
            subprocess.run(inside(ROUTER, "sysctl", "-qw", key), check=True)
        command = inside(ROUTER, sys.executable, str(HERE), "delay-line")
        self.line = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        assert self.line.stdout is not None
        assert self.line.stdout.readline() == "up\n"
        sh(f"ip -n {ROUTER} link set delay0 up txqueuelen 10000")
        sh(f"ip -n {ROUTER} route add default dev delay0 table 100")
        for k, name in enumerate(self.names):
            sh(f"ip link add in{k} netns {name} type veth peer name out{k} netns {ROUTER}")
            sh(f"ip -n {name} addr add {address(k)}/24 dev in{k}")
            sh(f"ip -n {ROUTER} addr add 10.77.{k}.1/24 dev out{k}")
            sh(f"ip -n {name} link set in{k} up")
            sh(f"ip -n {ROUTER} link set out{k} up")
            sh(f"ip -n {name} route add default via 10.77.{k}.1")
            sh(f"ip -n {ROUTER} rule add iif out{k} lookup 100")
            # Starts anew after a pause like CUBIC, most machines' default, which a namespace may
            # not choose here; BBR, the default here, does not.
            subprocess.run(
                inside(name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"), check=True
            )
        return self

    def shape(self, setting: Setting) -> None:
        assert self.line.stdin is not None
        self.line.stdin.write(f"{setting.latency}\n")
        self.line.stdin.flush()
        for k, name in enumerate(self.names):
            for where, device in ((name, f"in{k}"), (ROUTER, f"out{k}")):
                if setting.bandwidth is None:
                    sh(f"tc -n {where} qdisc del dev {device} root", check=False)
                else:
                    sh(
                        f"tc -n {where} qdisc replace dev {device} root tbf rate"
                        f" {int(8 * setting.bandwidth)}bit burst 2kb limit 4mb"
                    )

    def __exit__(self, *_: object) -> None:
        self.line.kill()
        self.line.wait()
        self._remove()

    def _remove(self) -> None:
        for name in (ROUTER, *self.names):
            sh(f"ip netns del {name}", check=False)


# -- participants ----------------------------------------------------------------------------------


def take_part(config: Path, times: Path) -> None:
    """`coterie peer --config`, with a note of when each round began and ended."""
    from coterie.cli.peer import peer
    from coterie.deploy.hub import Hub
    from coterie.deploy.peer import Peer

    ends: list[float] = []

    def noted(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            ends.append(time.monotonic())
            part = times.with_suffix(".part")  # whoever reads must never see half a file
            part.write_text(json.dumps(ends))
            part.replace(times)
            return out

        return wrapper

    Peer.finish, Hub.close = noted(Peer.finish), noted(Hub.close)  # type: ignore[method-assign]
    peer(config)


MANY = 100_000
"""Rounds of the plan: more than are ever run; the processes are stopped."""
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]
"""Five peers: a ring and a chord."""


def write_sites(folder: Path, kind: str, hidden: int) -> tuple[Any, Any, list[Path]]:
    """(plan, federation, the participants' configs)."""
    import tomli_w

    import coterie
    from coterie.deploy.keys import authority as keys
    from coterie.deploy.plan import Plan
    from coterie.deploy.problem import Problem
    from coterie.deploy.site import save_own
    from coterie.engine.training import Training
    from coterie.models.base import get_model

    clients = 5 if kind == "peers" else 3
    fed = coterie.load("digits", clients=clients)
    method = coterie.get_method("dfedu" if kind == "peers" else "fedavg", {"local_steps": 5})
    names = tuple(f"site-{k}" for k in range(clients))
    training = Training(rounds=MANY, eval_every=MANY, batch_size=20)
    plan = Plan(
        "bench", names, Problem.of(fed), get_model("mlp", {"hidden": str(hidden)}), training, method
    )
    (folder / "plan.toml").write_text(plan.to_toml())
    keys.init(folder / "keys", "bench")
    everyone = [*names, "hub"] if kind == "star" else list(names)
    paths = []
    for k, name in enumerate(everyone):
        keys.issue(
            folder / "keys",
            name,
            ips=[address(k)],
            role="peer" if kind == "peers" else "hub" if name == "hub" else "client",
        )
        site: dict[str, Any] = {
            "plan": "plan.toml",
            "name": name,
            "folder": f"{name}-state",
            "keys": f"keys/nodes/{name}",
        }
        if name != "hub":
            save_own(fed, k, folder / f"{name}.npz")
            site["data"] = {"path": f"{name}.npz"}
        if kind == "peers":
            # The one with the larger number calls; the other only listens.
            near = sorted({a + b - k for a, b in EDGES if k in (a, b)})
            site |= {"number": k, "listen": f"tls/{address(k)}:7447"}
            site["neighbours"] = [
                {
                    "name": names[l],
                    "number": l,
                    "endpoint": f"tls/{address(l)}:7447" if l < k else "",
                    "weight": 1.0,
                }
                for l in near
            ]
        elif name == "hub":
            site |= {
                "role": "hub",
                "listen": f"tls/{address(k)}:7447",
                "neighbours": [{"name": n} for n in names],
            }
        else:
            site["neighbours"] = [{"name": "hub", "endpoint": f"tls/{address(clients)}:7447"}]
        paths.append(folder / f"{name}.toml")
        paths[-1].write_text(tomli_w.dumps(site))
    return plan, fed, paths


def finished(times: list[Path]) -> list[float]:
    """When each round was over everywhere, so far."""
    ends = []
    for path in times:
        ends.append(json.loads(path.read_text()) if path.exists() else [])
    return [max(moment) for moment in zip(*(e for e in ends), strict=False)]


def measured(
    kind: str, plan_of: tuple[Any, Any, list[Path]], setting: Setting, rounds: int
) -> list[float]:
    """The seconds of so many rounds of a federation that was started on this network."""
    configs = plan_of[2]
    # Where a round ends: at the hub, or when the last peer has it.
    times = [c.with_suffix(".times") for c in configs if kind == "peers" or c.stem == "hub"]
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0",
        "JAX_COMPILATION_CACHE_DIR": str(configs[0].parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    for config in configs:
        shutil.rmtree(config.with_name(f"{config.stem}-state"), ignore_errors=True)
        config.with_suffix(".times").unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(len(configs)))
        lab.shape(setting)
        running = []
        for k, config in enumerate(configs):
            log = stack.enter_context(config.with_suffix(".log").open("w"))
            command = inside(
                lab.names[k],
                sys.executable,
                str(HERE),
                "take-part",
                str(config),
                str(config.with_suffix(".times")),
            )
            running.append(subprocess.Popen(command, env=environment, stderr=log, stdout=log))
            stack.callback(_end, running[-1])
        deadline = time.monotonic() + 900
        while len(ends := finished(times)) < WARM_UP + rounds + 1:
            if time.monotonic() > deadline or any(
                process.poll() is not None for process in running
            ):
                raise SystemExit(
                    "\n".join(config.with_suffix(".log").read_text()[-2000:] for config in configs)
                )
            time.sleep(0.5)
        mine = ends[WARM_UP : WARM_UP + rounds + 1]
        return [b - a for a, b in pairwise(mine)]


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()


def simulated(kind: str, plan: Any, fed: Any) -> Any:
    """The same run in the simulator, for its bill."""
    import numpy as np

    from coterie.coupling.graph import from_matrix
    from coterie.engine.simulate import simulate

    graph = None
    if kind == "peers":
        weights = np.zeros((5, 5))
        for k, l in EDGES:
            weights[k, l] = weights[l, k] = 1
        graph = from_matrix(weights)
    options = {**plan.training.to_config(), "rounds": SIMULATED, "eval_every": SIMULATED}
    return simulate(plan.method, fed, plan.model, graph=graph, channel=plan.channel, **options)


SIMULATED = 6


def steady(forecast: Any) -> float:
    """Seconds per round, once peers have settled."""
    return float(forecast.seconds[-1] - forecast.seconds[1]) / (SIMULATED - 2)


def compare(
    kind: str, hidden: int, rounds: int, folder: Path, settings: tuple[Setting, ...]
) -> None:
    from coterie.network.model import ENGINES, Network, forecast_result, measure_gradient_seconds

    folder.mkdir()
    plan_of = write_sites(folder, kind, hidden)
    result = simulated(kind, *plan_of[:2])
    gradient = measure_gradient_seconds(result.simulator)
    title = "dFedU, 5 peers, ring and chord" if kind == "peers" else "FedAvg, hub and 3 clients"
    print(
        f"\n{title}, messages of {_message(result)}, Zenoh with TLS; mean (median) of {rounds}"
        " rounds\n"
    )
    print(
        "| latency, one way | bandwidth | s/round without either | predicted s/round | measured"
        " s/round | predicted / measured | with the preset |"
    )
    print("|---|---|---|---|---|---|---|")
    # What a round costs besides the network drifts with what else the machine does: it is measured
    # right before and right after each setting.
    works, before = [], measured(kind, plan_of, FREE, rounds)
    for setting in settings:
        found, after = (
            measured(kind, plan_of, setting, rounds),
            measured(kind, plan_of, FREE, rounds),
        )
        free, before = [*before, *after], after
        each = setting.bandwidth  # every participant has this, so the hub too
        network = Network(
            latency=setting.latency,
            up=each,
            down=each,
            hub_up=each,
            hub_down=each,
            gradient_seconds=gradient,
        )
        bare = steady(
            forecast_result(
                Network(latency=0.0, gradient_seconds=gradient, work_seconds=0.0), result
            )
        )
        works.append(max(0.0, statistics.mean(free) - bare))
        real, middle = statistics.mean(found), statistics.median(found)
        told, preset = (
            steady(forecast_result(n, result))
            for n in (network.replace(work_seconds=works[-1]), network)
        )
        limit = "no limit" if setting.bandwidth is None else f"{setting.bandwidth / MBIT:g} Mbit/s"
        print(
            f"| {1000 * setting.latency:.0f} ms | {limit} | {statistics.mean(free):.3f} |"
            f" {told:.3f} | {real:.3f} ({middle:.3f}) | {told / real:.2f} | {preset / real:.2f} |",
            flush=True,
        )
    spread = f"{min(works):.3f} to {max(works):.3f}"
    print(
        f"\nwork_seconds {spread} (preset {ENGINES['zenoh'].work_seconds}), gradient_seconds"
        f" {gradient:.5f}",
        flush=True,
    )


def _message(result: Any) -> str:
    from coterie.report.units import bytes_text

    rows = result.ledger.rows()
    degrees = 1 if result.simulator.graph is None else result.simulator.graph.degrees[0]
    return bytes_text(rows[0, 2] / degrees)


def main() -> None:
    if sys.argv[1:2] == ["delay-line"]:
        return delay_line()
    if sys.argv[1:2] == ["take-part"]:
        return take_part(Path(sys.argv[2]), Path(sys.argv[3]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="peers|star", help="nothing: both")
    parser.add_argument("--rounds", type=int, default=10, help="measured under each setting")
    parser.add_argument(
        "--hidden",
        type=int,
        default=[128],
        nargs="*",
        help="hidden units of the model: 128 give messages of 38 kB, 512 of 154 kB",
    )
    parser.add_argument(
        "--settings", type=int, nargs="*", help="numbers of the settings; nothing: all"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    if strange := set(given.kinds) - {"peers", "star"}:
        parser.error(f"{strange.pop()!r} is neither 'peers' nor 'star'")
    chosen = tuple(SETTINGS[i] for i in given.settings) if given.settings else SETTINGS
    with tempfile.TemporaryDirectory(prefix="coterie-network-") as folder:
        for kind in given.kinds or ("peers", "star"):
            for hidden in given.hidden:
                compare(kind, hidden, given.rounds, Path(folder) / f"{kind}-{hidden}", chosen)


if __name__ == "__main__":
    main()
