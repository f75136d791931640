"""A local round of convolutional models: coterie against a PyTorch loop with one module per client,
in one run on one machine.

    pip install -e '.[bench]' && python bench/conv.py
    python bench/conv.py --model lenet-32 --repeats 9

10 clients, each takes 20 steps of plain SGD on batches of 20; random images, since only speed is
measured. Ours is a round of FedAvg in the simulator, with drawing the batches and merging. The
PyTorch loop does the same steps with `nn.Conv2d` modules on 1 and on 2 threads and merges nothing.
They take turns; the medians are told, and ratios to PyTorch's better number of threads: with the
group of clients that the simulator chooses, and with one client at a time. CPU seconds are those of
the whole process, over all threads: on a machine that others use, too, they vary less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import coterie
from coterie.data.federation import Federation, Split

CLIENTS, STEPS, B, SAMPLES, CLASSES, LR = 10, 20, 20, 400, 10, 0.01
MODELS = {
    "lenet-32": ("lenet", (32, 32, 3)),
    "lenet-28": ("lenet", (28, 28, 1)),
    "cnn-28": ("cnn", (28, 28, 1)),
    "resnet-28": ("resnet", (28, 28, 1)),
}


def federation(shape: tuple[int, int, int]) -> Federation:
    rng = np.random.default_rng(0)

    def split(each: int) -> Split:
        x = rng.random((CLIENTS * each, *shape), dtype=np.float32)
        y = rng.integers(0, CLASSES, CLIENTS * each).astype(np.int32)
        return Split(x, y, np.arange(CLIENTS + 1, dtype=np.int64) * each)

    return Federation("random", split(SAMPLES), split(0), split(1), "classification", CLASSES)


def ours(model: str, shape: tuple[int, int, int], at_once: int | None = None) -> Callable[[], None]:
    """A function that does one round of FedAvg."""
    method = coterie.FedAvg(lr=LR, local_steps=STEPS)
    options = coterie.Training(
        rounds=10_000, eval_every=10_000, batch_size=B, clients_at_once=at_once
    )
    simulator = coterie.Simulator(method, federation(shape), model, options)

    def one_round() -> None:
        simulator.advance(1)
        jax.block_until_ready((simulator.hub_state, simulator.store.rows))

    return one_round


def network(model: str, shape: tuple[int, int, int]) -> Any:
    """The same model of PyTorch's modules."""
    from torch import nn

    height, width, channels = shape
    if model == "lenet":
        flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        features = [nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)]
        features += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        head = [nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
        return nn.Sequential(*features, *head, nn.Linear(84, CLASSES))
    if model == "cnn":
        features = [nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        features += [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        flat = 64 * (height // 4) * (width // 4)
        return nn.Sequential(*features, nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, CLASSES))

    class Residual(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.a = nn.Sequential(
                *(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(16, b), nn.ReLU()),
                *(nn.Conv2d(b, b, 3, 1, 1), nn.GroupNorm(16, b)),
            )
            self.b = nn.Identity() if a == b and stride == 1 else nn.Conv2d(a, b, 1, stride)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.a(x) + self.b(x))

    begin = [nn.Conv2d(channels, 64, 7, 2, 3), nn.GroupNorm(16, 64), nn.ReLU()]
    body = [Residual(64, 64, 1), Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 128, 1)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES)]
    return nn.Sequential(*begin, nn.MaxPool2d(3, 2, 1), *body, *end)


def pytorch(model: str, shape: tuple[int, int, int], threads: int) -> Callable[[], None]:
    """A function that does the same steps in a loop over clients."""
    import torch
    from torch import nn

    height, width, channels = shape
    x = torch.rand(CLIENTS, SAMPLES, channels, height, width)
    y = torch.randint(0, CLASSES, (CLIENTS, SAMPLES))
    models = [network(model, shape) for _ in range(CLIENTS)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=LR) for m in models]

    def one_round() -> None:
        torch.set_num_threads(threads)
        for k, (module, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            for _ in range(STEPS):
                rows = torch.randint(0, SAMPLES, (B,))
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x[k, rows]), y[k, rows]).backward()
                optimizer.step()

    return one_round


def seconds(one_round: Callable[[], None]) -> tuple[float, float]:
    """On the clock, and of the CPUs."""
    begun, used = time.perf_counter(), time.process_time()
    one_round()
    return time.perf_counter() - begun, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, action="append", help="repeat; default: all")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each that are timed")
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=[1, 2],
        help="PyTorch's; on a busy machine several wait for each other and take minutes",
    )
    parser.add_argument("--clients", type=int, default=CLIENTS, help="fewer on a busy machine")
    arguments = parser.parse_args()
    globals()["CLIENTS"] = arguments.clients
    headings = " | ".join(f"PyTorch, threads: {count}" for count in arguments.threads)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(
        f"| model | seconds of | ours | ours, one at a time | {headings} | ratio | ratio, one at a"
        f" time |\n|{'---|' * (6 + len(arguments.threads))}"
    )
    for name in arguments.model or MODELS:
        rounds = [ours(*MODELS[name]), ours(*MODELS[name], at_once=1)]
        rounds += [pytorch(*MODELS[name], threads) for threads in arguments.threads]
        for one_round in rounds:
            one_round()  # compiles, or warms up
        times = [[seconds(one_round) for one_round in rounds] for _ in range(arguments.repeats)]
        for i, what in enumerate(("clock", "CPU")):
            mine, single, *theirs = (
                statistics.median(t[i] for t in column) for column in zip(*times, strict=True)
            )
            best = min(theirs)
            told = " | ".join(f"{t:.3f}" for t in (mine, single, *theirs))
            print(
                f"| {name} | {what} | {told} | {best / mine:.2f} | {best / single:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
