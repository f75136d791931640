"""Predicted and measured time of rounds: real processes in network namespaces, one per participant,
joined by links with a latency and a bandwidth.

python bench/network.py                  # as root; some minutes
python bench/network.py peers --hidden 512 --rounds 8

Every participant has a namespace and a pair of veth devices to a router's namespace. Bandwidth is
the kernel's own (`tc … tbf`, both ways). Latency is a line that every packet between participants
goes through once, in the router's namespace: a TUN device whose packets are held for so long and
put back (bench/network_lab.py), because the kernel here lacks netem. What runs is `coterie peer`,
or `coterie hub` and `coterie client` (Zenoh over TLS with certificates on both sides), with a probe
that notes when a round ends.

Every setting has a federation of its own, started on that network: what TCP knows of a link depends
on what went before. Rounds without latency and limit, before and after each setting, give what a
round costs besides the network on this machine; with the time of a gradient (measured apart) that
is all the prediction is told. The first rounds, which compile, are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from network_lab import FREE, MBIT, Lab, Setting, inside
from network_sites import EDGES, HERE, write_sites

WARM_UP = 2
"""Rounds that are not measured."""
SETTINGS = (
    Setting(0.02, 10 * MBIT),
    Setting(0.1, 10 * MBIT),
    Setting(0.05, 2 * MBIT),
    Setting(0.02, 1 * MBIT),
    Setting(0.1, None),
)


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
    from coterie.network import ENGINES, Network, forecast_result, measure_gradient_seconds

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
        guess, preset = (
            steady(forecast_result(n, result))
            for n in (network.replace(work_seconds=works[-1]), network)
        )
        limit = "no limit" if setting.bandwidth is None else f"{setting.bandwidth / MBIT:g} Mbit/s"
        print(
            f"| {1000 * setting.latency:.0f} ms | {limit} | {statistics.mean(free):.3f} |"
            f" {guess:.3f} | {real:.3f} ({middle:.3f}) | {guess / real:.2f} |"
            f" {preset / real:.2f} |",
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
