"""Flower: its simulation (Ray) and its FedAvg, with a PyTorch model in the clients.

The simulation runs in a thread, and its strategy waits for the worker's word before each round.
Clients get one core each; what a client keeps between rounds is the data of its process.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from bench.problems import LR, Problem, data

PROBLEM = "COTERIE_BENCH_PROBLEM"
client = ClientApp()


def network(sizes: list[int]) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


@cache
def held() -> tuple[Problem, Any, Any, torch.nn.Module]:
    """What a process of clients needs to do once."""
    torch.set_num_threads(1)
    problem = Problem.read(json.loads(os.environ[PROBLEM]))
    x, y = (torch.from_numpy(a) for a in data(problem))
    return problem, x, y, network(problem.sizes)


@client.train()
def train(message: Message, context: Context) -> Message:
    problem, x, y, model = held()
    k = int(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), LR)
    for _ in range(problem.steps):
        rows = torch.randint(0, problem.samples, (problem.batch,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[k, rows]), y[k, rows]).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": problem.samples}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class WhenTold(FedAvg):
    """FedAvg that waits before a round and tells when it is over."""

    def __init__(self, told: queue.Queue[str], done: queue.Queue[str], **options: Any) -> None:
        super().__init__(**options)
        self.told, self.done = told, done

    def summary(self) -> None:
        pass

    def configure_train(self, *arguments: Any, **options: Any) -> Any:
        self.told.get()
        return super().configure_train(*arguments, **options)

    def aggregate_train(self, *arguments: Any, **options: Any) -> Any:
        found = super().aggregate_train(*arguments, **options)
        self.done.put("round" if found[0] is not None else "failed")
        return found


class Player:
    """What a worker drives (worker.py)."""

    def __init__(self, problem: Problem, kind: str = "") -> None:
        os.environ |= {
            PROBLEM: json.dumps(problem.json()),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_DEDUP_LOGS": "0",
        }
        self.told: queue.Queue[str] = queue.Queue()
        self.done: queue.Queue[str] = queue.Queue()
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            strategy = WhenTold(
                self.told,
                self.done,
                fraction_evaluate=0.0,
                min_train_nodes=problem.clients,
                min_available_nodes=problem.clients,
            )
            arrays = ArrayRecord(network(problem.sizes).state_dict())
            strategy.start(grid, arrays, num_rounds=10**6)

        def simulate() -> None:
            try:
                run_simulation(
                    server_app=server,
                    client_app=client,
                    num_supernodes=problem.clients,
                    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
                )
            finally:
                self.done.put("ended")

        threading.Thread(target=simulate, daemon=True).start()

    def close(self) -> None:
        import ray

        ray.shutdown()

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.told.put("go")
            if (found := self.done.get(timeout=600)) != "round":
                raise RuntimeError(f"the simulation {found}")
