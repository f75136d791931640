"""What a deployment needs: bytes per client and round, memory and seconds of hub and client, by
method, number of clients N, model size d and dsub.

python bench/sizing.py                 # a Markdown table; a few minutes

Hub and client are the real ones (coterie.deploy), each in a process of its own, without a wire
between them: what one client answers is recorded and given to the hub as the answer of all N.
Seconds are the median of rounds after the first (which compiles); memory is the most that a process
took (Python and JAX alone take about a quarter of a GB). N that would take too much here is
extrapolated, linearly from the two largest.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROUNDS = 3
SAMPLES, BATCH = 200, 20
MOST_CLIENTS, MOST_NUMBERS = 100, 10_000_000
"""N and N · d up to which is measured."""
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedu", {"local_steps": 10}),
    ("pfedme", {"local_rounds": 2, "inner_steps": 5}),
    ("lp-proj-1", {"local_rounds": 2, "inner_steps": 5, "dsub": 50}),
)
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mlr", {}),
    ("mlp", {"hidden": "100"}),
    ("mlp", {"hidden": "1250"}),
)
CLIENTS = (10, 100, 1000)
INPUTS, LABELS = 784, 10


def plan_of(case: int, model: int, clients: int) -> Any:
    from coterie.deploy.plan import Plan
    from coterie.deploy.problem import Problem
    from coterie.engine.training import Training
    from coterie.methods.base import get_method
    from coterie.models.base import get_model

    name, options = CASES[case]
    problem = Problem("classification", (INPUTS,), tuple(map(str, range(LABELS))))
    names = tuple(f"site-{k}" for k in range(clients))
    graph = {"kind": "ring"} if name == "fedu" and clients > 2 else {}
    training = Training(rounds=ROUNDS, eval_every=ROUNDS, batch_size=BATCH)
    return Plan(
        "sizing",
        names,
        problem,
        get_model(*MODELS[model]),
        training,
        get_method(name, options),
        graph=graph,
    )


def peak() -> float:
    """The most memory since `forget`, in MB."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def forget() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def client_side(case: int, model: int, record: Path) -> dict[str, float]:
    """Runs a hub with two clients to record what is asked and answered; then a client alone,
    timed.
    """
    import numpy as np

    from coterie.data.federation import Federation, Split
    from coterie.deploy.client import Client
    from coterie.deploy.hub import Hub

    rng = np.random.default_rng(0)
    x, y = (
        rng.random((SAMPLES, INPUTS), dtype=np.float32),
        rng.integers(0, LABELS, SAMPLES).astype(np.int32),
    )
    none = Split(x[:0], y[:0], np.array([0, 0]))
    own = Federation(
        "own", Split(x, y, np.array([0, SAMPLES])), none, none, "classification", LABELS
    )
    plan = plan_of(case, model, 2)
    with tempfile.TemporaryDirectory() as folder:
        forget()
        hub = Hub(plan, Path(folder) / "hub", say=lambda sentence: None)
        clients = [Client(plan, k, own, Path(folder) / str(k)) for k in range(2)]
        replies, spent = [], []
        for _ in range(ROUNDS):
            for k, request in hub.requests().items():
                begun = time.perf_counter()
                reply = clients[k].answer(request)
                spent.append(time.perf_counter() - begun)
                hub.take(k, reply)
            replies.append(reply)
            hub.close()
        rows = hub.ledger.rows()
    record.write_bytes(pickle.dumps(replies))
    last = rows[rows[:, 0] == ROUNDS - 1][0]
    return {
        "d": float(clients[0].worker.template.size),
        "up": float(last[2]),
        "down": float(last[3]),
        "gradients": float(last[4]),
        "client_seconds": statistics.median(spent[2:]),
        "client_memory": peak(),
    }


def hub_side(case: int, model: int, record: Path, sizes: list[int]) -> list[dict[str, float]]:
    """A hub that hears the same from everybody."""
    import gc

    from coterie.deploy.hub import Hub

    replies = pickle.loads(record.read_bytes())
    found = []
    for clients in sizes:
        plan = plan_of(case, model, clients)
        with tempfile.TemporaryDirectory() as folder:
            gc.collect()
            forget()
            hub = Hub(plan, Path(folder) / "hub", say=lambda sentence: None)
            spent = []
            for reply in replies:
                begun = time.perf_counter()
                for k in hub.requests():
                    hub.take(k, dataclasses.replace(reply, plan=plan.fingerprint))
                hub.close()
                spent.append(time.perf_counter() - begun)
            disk = sum(path.stat().st_size for path in (Path(folder) / "hub").iterdir())
        found.append(
            {
                "clients": clients,
                "hub_seconds": statistics.median(spent[1:]),
                "hub_memory": peak(),
                "hub_disk": disk,
            }
        )
    return found


def run(*arguments: Any) -> Any:
    out = subprocess.run(
        [sys.executable, str(HERE), *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(out.stdout.strip().splitlines()[-1])


def extrapolated(rows: list[dict[str, float]], clients: int) -> dict[str, float]:
    """Linearly from the two largest that were measured; never less than those."""
    a, b = rows[-2:]
    share = (clients - b["clients"]) / (b["clients"] - a["clients"])
    return {key: max(b[key], b[key] + share * (b[key] - a[key])) for key in b} | {
        "clients": clients
    }


def main() -> None:
    if sys.argv[1:2] == ["client"]:
        print(json.dumps(client_side(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
        return
    if sys.argv[1:2] == ["hub"]:
        print(
            json.dumps(
                hub_side(
                    int(sys.argv[2]),
                    int(sys.argv[3]),
                    Path(sys.argv[4]),
                    [int(n) for n in sys.argv[5:]],
                )
            )
        )
        return
    from coterie.report.units import bytes_text, seconds_text

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        type=int,
        nargs="*",
        default=list(range(len(MODELS))),
        help="numbers of the models, by size",
    )
    models = parser.parse_args().models
    columns = [
        "method",
        "d",
        "dsub",
        "N",
        "up",
        "down",
        "client s",
        "client memory",
        "hub s",
        "hub memory",
        "hub disk",
        "",
    ]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for case, (name, options) in enumerate(CASES):
        for model in models:
            with tempfile.TemporaryDirectory() as folder:
                record = Path(folder) / "replies"
                one = run("client", case, model, record)
                numbers = one["d"] if name != "lp-proj-1" else options["dsub"]
                sizes = [
                    n
                    for n in CLIENTS
                    if n <= MOST_CLIENTS and (n <= 20 or n * numbers <= MOST_NUMBERS)
                ]
                sizes = sizes if len(sizes) > 1 else [5, *sizes]
                rows = [
                    row for n in sizes for row in run("hub", case, model, record, n)
                ]  # a process each: memory is of one alone
            for n in CLIENTS:
                found = next((r for r in rows if r["clients"] == n), None)
                row = found or extrapolated(rows, n)
                cells = [
                    name,
                    f"{one['d']:,.0f}",
                    str(options.get("dsub", "–")),
                    f"{n:,}",
                    bytes_text(one["up"]),
                    bytes_text(one["down"]),
                    seconds_text(one["client_seconds"]),
                    bytes_text(1e6 * one["client_memory"]),
                    seconds_text(row["hub_seconds"]),
                    bytes_text(1e6 * row["hub_memory"]),
                    bytes_text(row["hub_disk"]),
                    "" if found else "extrapolated",
                ]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
