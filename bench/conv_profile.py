"""Where the time of a local step of a convolutional model goes, one client at a time.

    python -m bench.conv_profile --model cnn-28
    python -m bench.conv_profile --products

The first takes JAX's profiler over 20 steps of SGD on batches of 20 and prints the milliseconds of
a step in each of XLA's operations, the largest first. The second prints GFLOP/s of one thread: of
XLA's products in the shapes of McMahan's CNN, and of PyTorch's convolutions. Pin it to one core
(`taskset -c 1`): XLA has no switch for the number of its threads.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bench.conv import LR, MODELS, STEPS, B
from bench.round_profile import show, spent
from coterie.models.base import get_model

SHAPES = {
    "large": (1, 1024, 1024, 1024),
    "second convolution, forward, tiles of side 4": (64, 64, 32, 320),
    "second convolution, forward, tiles of side 2": (36, 64, 32, 980),
    "second convolution, forward, patches": (1, 64, 800, 3920),
    "first convolution, forward": (1, 128, 36, 3920),
    "dense layer, forward": (1, 512, 3136, 20),
}
"""Matrices, rows, depth, columns."""


def steps(model: str, shape: tuple[int, int, int]) -> Callable[[], Any]:
    """A function that takes some steps of one client."""
    made = get_model(model).build(shape, 10)
    x = jax.random.uniform(jax.random.key(0), (STEPS, B, *shape))
    y = jax.random.randint(jax.random.key(1), (STEPS, B), 0, 10)

    def loss(p: Any, x: Any, y: Any) -> Any:
        out = made.apply(p, x)
        return jnp.mean(jax.nn.logsumexp(out, 0) - jnp.take_along_axis(out, y[None], 0)[0])

    def all_steps(p: Any, x: Any, y: Any) -> Any:
        def one(i: Any, p: Any) -> Any:
            return jax.tree.map(lambda a, g: a - LR * g, p, jax.grad(loss)(p, x[i], y[i]))

        return jax.lax.fori_loop(0, STEPS, one, p)

    compiled = jax.jit(all_steps).lower(made.init(jax.random.key(2)), x, y).compile()
    p = made.init(jax.random.key(2))
    return lambda: (jax.block_until_ready(compiled(p, x, y)), compiled)[1]


def speed(run: Callable[[], Any], flops: int, repeats: int = 15) -> float:
    run()
    took = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        took.append(time.process_time() - begun)
    return flops / statistics.median(took) / 1e9


def products() -> None:
    for what, (count, rows, depth, columns) in SHAPES.items():
        a, b = jnp.ones((count, rows, depth)), jnp.ones((count, depth, columns))
        f = jax.jit(jnp.matmul).lower(a, b).compile()
        run = lambda f=f, a=a, b=b: jax.block_until_ready(f(a, b))
        print(f"{speed(run, 2 * count * rows * depth * columns):6.0f} GFLOP/s  {what}")
    import torch

    torch.set_num_threads(1)
    for what, channels, outputs, side in (("first", 1, 32, 28), ("second", 32, 64, 14)):
        x, w = torch.rand(B, channels, side, side), torch.rand(outputs, channels, 5, 5)
        flops = 2 * B * side * side * 25 * channels * outputs
        run = lambda x=x, w=w: torch.nn.functional.conv2d(x, w, padding=2)
        print(f"{speed(run, flops):6.0f} GFLOP/s  PyTorch's {what} convolution, forward")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="cnn-28")
    parser.add_argument("--most", type=int, default=24, help="operations that are printed")
    parser.add_argument("--products", action="store_true")
    arguments = parser.parse_args()
    if arguments.products:
        products()
    else:
        run = steps(*MODELS[arguments.model])
        show(spent(run, run().as_text()), STEPS, "step", arguments.most)


if __name__ == "__main__":
    main()
