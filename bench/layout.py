"""Why models are class-major, why a convolution is patches and a matrix product, and what the Gram
matrix saves: timed in one run.

python -m bench.layout
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import coterie
from bench.contenders.ours import federation, method_of, model_of
from bench.problems import ROWS
from coterie.models.build import build_model
from coterie.models.layers import conv, conv_init

CLIENTS, BATCH, FEATURES, CLASSES = 100, 20, 60, 10


def seconds(function: Callable[..., Any], *arguments: Any, repeats: int = 20) -> float:
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(repeats):
            result = compiled(*arguments)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - begun) / repeats)
    return best


def steps(loss: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """50 gradient steps of all clients, each with its own weights and batch."""
    return lambda w, x, y: lax.fori_loop(
        0, 50, lambda _, w: w - 0.1 * jax.vmap(jax.grad(loss))(w, x, y), w
    )


def batch_major(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return jnp.mean(jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0])


def class_major(w: Any, x: Any, y: Any) -> Any:
    z = w @ x.T
    return jnp.mean(jax.nn.logsumexp(z, 0) - jnp.take_along_axis(z, y[None], 0)[0])


def main() -> None:
    key = jax.random.key(0)
    x = jax.random.normal(key, (CLIENTS, BATCH, FEATURES))
    y = jax.random.randint(key, (CLIENTS, BATCH), 0, CLASSES)
    slow = seconds(steps(batch_major), jnp.zeros((CLIENTS, FEATURES, CLASSES)), x, y)
    fast = seconds(steps(class_major), jnp.zeros((CLIENTS, CLASSES, FEATURES)), x, y)
    print(
        f"logistic regression, 100 clients, 50 steps: batch-major {slow * 1e3:.1f} ms, class-major"
        f" {fast * 1e3:.1f} ms, ratio {slow / fast:.1f}"
    )

    clients, batch, side = 10, 20, 28
    images = jax.random.normal(key, (clients, 1, side, side, batch))
    parameters = jax.vmap(lambda k: conv_init(k, 1, 32, 5))(jax.random.split(key, clients))

    def patches(p: Any, x: Any) -> Any:
        return jax.grad(lambda p: jnp.sum(jnp.square(conv(p, x, 5))))(p)

    def native(p: Any, x: Any) -> Any:
        kernel = lambda w: jnp.transpose(w.reshape(32, 5, 5, 1), (0, 3, 1, 2))
        out = lambda p: lax.conv_general_dilated(
            jnp.transpose(x, (3, 0, 1, 2)), kernel(p["w"]), (1, 1), "VALID"
        )
        return jax.grad(lambda p: jnp.sum(jnp.square(out(p) + p["b"][:, None, None])))(p)

    fast = seconds(jax.vmap(patches), parameters, images, repeats=3)
    slow = seconds(jax.vmap(native), parameters, images, repeats=3)
    print(
        f"5×5 convolution and its gradient, 10 clients: XLA's under vmap {slow * 1e3:.1f} ms,"
        f" patches {fast * 1e3:.1f} ms, ratio {slow / fast:.1f}"
    )

    for problem in (row for row in ROWS if row.method == "pfedme"):
        fed = federation(problem)
        model = build_model(model_of(problem), fed.shape)
        method = method_of(problem)
        spent = {}
        for name, layer in (("plain", None), ("gram", model.input_layer)):
            simulator = coterie.Simulator(
                method,
                fed,
                dataclasses.replace(model, input_layer=layer),
                coterie.Training(rounds=100),
            )
            for _ in range(3):
                simulator.advance(1)
            begun, before = time.perf_counter(), simulator.t
            while simulator.t - before < 20:
                simulator.advance(20 - (simulator.t - before))
            spent[name] = (time.perf_counter() - begun) / 20
        ratio = spent["plain"] / spent["gram"]
        plain, gram = (f"{1e3 * spent[name]:.0f} ms" for name in ("plain", "gram"))
        print(
            f"{problem.name}: plain steps {plain}, through the Gram matrix {gram}, ratio"
            f" {ratio:.1f}"
        )


if __name__ == "__main__":
    main()
