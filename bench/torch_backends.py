"""A PyTorch module in the simulator: computed by JAX, by callbacks, and the same model in coterie's
own layers; in one run on one machine.

    pip install -e '.[bench]' && python -m bench.torch_backends

writes bench/torch_backends.result.md. 10 clients, each takes 20 steps of plain SGD on batches of
20; random samples, since only speed is measured. The three take turns; medians are told. Seconds of
cores are those of the whole process, over all threads: on a machine that others use, too, they vary
less than those of the clock. `first` is the clock from the module to the end of the first round:
building, tracing, comparing, compiling.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import torch
from torch import nn

import coterie
from bench.conv import CLIENTS, LR, STEPS, B, federation
from bench.timing import machine
from coterie.core.files import write_text
from coterie.models.base import get_model

SHAPE = (28, 28, 1)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


class LeNet(nn.Module):
    """The shipped `lenet`; samples are (height, width, channels)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.dense1, self.dense2 = nn.Linear(256, 120), nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x.permute(0, 3, 1, 2))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.out(torch.relu(self.dense2(torch.relu(self.dense1(x)))))


MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "perceptron 784–100–10": (perceptron, get_model("mlp")),
    "LeNet 28×28": (LeNet, get_model("lenet")),
}
CONTENDERS = ("callback", "jax", "own layers")


def rounds(name: str, contender: str) -> Callable[[], None]:
    """A function that does one round of FedAvg."""
    make, own = MODELS[name]
    torch.manual_seed(0)
    model = own if contender == "own layers" else coterie.torch_model(make(), backend=contender)
    method = coterie.FedAvg(lr=LR, local_steps=STEPS)
    options = coterie.Training(rounds=10_000, eval_every=10_000, batch_size=B)
    simulator = coterie.Simulator(method, federation(SHAPE), model, options)

    def one_round() -> None:
        simulator.advance(1)
        jax.block_until_ready((simulator.hub_state, simulator.store.rows))

    return one_round


def measured(name: str, repeats: int) -> dict[str, tuple[float, float, float]]:
    """Seconds of the clock and of cores of a round, and of the clock for the first."""
    runs, first = {}, {}
    for contender in CONTENDERS:
        begun = time.perf_counter()
        runs[contender] = rounds(name, contender)
        runs[contender]()
        first[contender] = time.perf_counter() - begun
        runs[contender]()
    taken: dict[str, list[tuple[float, float]]] = {contender: [] for contender in CONTENDERS}
    for _ in range(repeats):
        for contender, one_round in runs.items():
            clock, cores = time.perf_counter(), time.process_time()
            one_round()
            spent = time.perf_counter() - clock, time.process_time() - cores
            taken[contender].append(spent)
    return {
        contender: (
            *(statistics.median(column) for column in zip(*of, strict=True)),
            first[contender],
        )
        for contender, of in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, in the callback")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    lines = [
        "# PyTorch modules: by JAX and by callbacks",
        "",
        f"`python -m bench.torch_backends --repeats {asked.repeats} --threads {asked.threads}`:"
        f" rounds of FedAvg, {CLIENTS} clients, {STEPS} steps each on batches of {B}; medians:",
        "",
        *(f"- {line}" for line in machine()),
        "",
        "| model | computed by | s of the clock | s of cores | s, first round |"
        " callback / this, clock | callback / this, cores |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in MODELS:
        found = measured(name, asked.repeats)
        slow = found["callback"]
        for contender, (clock, cores, first) in found.items():
            ratios = f"{slow[0] / clock:.1f} | {slow[1] / cores:.1f}"
            lines.append(
                f"| {name} | {contender} | {clock:.4f} | {cores:.4f} | {first:.1f} | {ratios} |"
            )
            print(lines[-1], flush=True)
    write_text(Path(__file__).with_suffix(".result.md"), "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
