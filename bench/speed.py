"""pFedMe rounds per second: coterie against a PyTorch loop with one module per client, in one run
on one machine.

    pip install -e '.[bench]' && python bench/speed.py            # all three problems
    python bench/speed.py --problem synthetic --rounds 100

All clients train in every round: R = 20 mini-batches of B = 20, K = 5 inner steps each; random
data, since only speed is measured. Ours includes the evaluation of all clients every 10 rounds;
compile time is told apart. "of peak" is the nominal work of the algorithm (two products with the
batch per layer and step) over time, relative to the machine's measured speed of large matrix
products; ours does less than the nominal work (see methods/inner.py).
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import coterie
from coterie.core.compilation import Compilations
from coterie.data.federation import Federation, Split
from coterie.engine.simulate import drive

PROBLEMS = {"synthetic": (100, 60, ()), "mlr": (20, 784, ()), "mlp": (20, 784, (100,))}
R, K, B, SAMPLES, TEST, CLASSES = 20, 5, 20, 2000, 200, 10
LAM, LR, PERSONAL_LR = 15.0, 0.005, 0.05


def federation(clients: int, features: int, samples: int = SAMPLES) -> Federation:
    rng = np.random.default_rng(0)

    def split(each: int) -> Split:
        x = rng.random((clients * each, features), dtype=np.float32)
        y = rng.integers(0, CLASSES, clients * each).astype(np.int32)
        return Split(x, y, np.arange(clients + 1, dtype=np.int64) * each)

    return Federation("random", split(samples), split(0), split(TEST), "classification", CLASSES)


def ours(problem: str, rounds: int) -> tuple[float, float]:
    """Seconds per round with evaluation every 10 rounds, and seconds of compiling."""
    clients, features, hidden = PROBLEMS[problem]
    model = coterie.get_model("mlp", {"hidden": ",".join(map(str, hidden))}) if hidden else "mlr"
    method = coterie.PFedMe(lam=LAM, lr=LR, personal_lr=PERSONAL_LR, local_rounds=R, inner_steps=K)
    options = coterie.Training(rounds=rounds + 10, eval_every=10, batch_size=B)
    with Compilations() as compilations:
        simulator = coterie.Simulator(method, federation(clients, features), model, options)
        begun = None
        for snapshot in drive(simulator):
            if snapshot.round == 10:
                begun = time.perf_counter()
    assert begun is not None
    return (time.perf_counter() - begun) / rounds, compilations.seconds


def pytorch_loop(problem: str, rounds: int) -> float:
    """Seconds per round of a loop over clients, one module each; one thread is its best at these
    sizes. No evaluation.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    clients, features, hidden = PROBLEMS[problem]
    x, y = torch.rand(clients, SAMPLES, features), torch.randint(0, CLASSES, (clients, SAMPLES))

    def network() -> nn.Module:
        sizes = [features, *hidden, CLASSES]
        layers: list[nn.Module] = []
        for a, b in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    models = [network() for _ in range(clients)]

    def one_round() -> None:
        for k, model in enumerate(models):
            theta = list(model.parameters())
            w = [p.detach().clone() for p in theta]
            for _ in range(R):
                rows = torch.randint(0, SAMPLES, (B,))
                xb, yb = x[k, rows], y[k, rows]
                for _ in range(K):
                    model.zero_grad()
                    nn.functional.cross_entropy(model(xb), yb).backward()
                    with torch.no_grad():
                        for p, anchor in zip(theta, w, strict=True):
                            assert p.grad is not None
                            p.sub_(PERSONAL_LR * (p.grad + LAM * (p - anchor)))
                with torch.no_grad():
                    for p, anchor in zip(theta, w, strict=True):
                        anchor.sub_(LR * LAM * (anchor - p))

    one_round()
    begun = time.perf_counter()
    for _ in range(rounds):
        one_round()
    return (time.perf_counter() - begun) / rounds


def matrix_peak() -> float:
    """FLOP/s of large float32 matrix products on all cores."""
    a = jnp.ones((1536, 1536))
    product = jax.jit(lambda a, b: a @ b)
    product(a, a).block_until_ready()
    best = 0.0
    for _ in range(10):
        begun = time.perf_counter()
        product(a, a).block_until_ready()
        best = max(best, 2 * 1536**3 / (time.perf_counter() - begun))
    return best


def nominal_flops(problem: str) -> float:
    clients, features, hidden = PROBLEMS[problem]
    sizes = [features, *hidden, CLASSES]
    layers = list(zip(sizes, sizes[1:], strict=False))
    forward_and_weights = sum(4 * B * a * b for a, b in layers)
    back_through = sum(2 * B * a * b for a, b in layers[1:])
    return clients * R * K * (forward_and_weights + back_through)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="repeat; default: all")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of ours that are timed")
    parser.add_argument(
        "--torch-rounds",
        type=int,
        default=3,
        help="rounds of the PyTorch loop that are timed; 0: leave it out",
    )
    arguments = parser.parse_args()
    peak = matrix_peak()
    print(f"matrix products: {peak / 1e9:.0f} GFLOP/s on {jax.device_count()} device(s)")
    print(
        "| problem | ours, s/round | PyTorch loop, s/round | ratio | of peak | compiling, s"
        " |\n|---|---|---|---|---|---|"
    )
    for problem in arguments.problem or PROBLEMS:
        mine, compiling = ours(problem, arguments.rounds)
        torch = (
            pytorch_loop(problem, arguments.torch_rounds)
            if arguments.torch_rounds
            else float("nan")
        )
        share = nominal_flops(problem) / mine / peak
        print(
            f"| {problem} | {mine:.4f} | {torch:.2f} | {torch / mine:.0f}× | {share:.0%} |"
            f" {compiling:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
