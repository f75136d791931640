"""Why pFedMe did badly when what its hub sends was compressed: a small model of it on HAR, outside
of the engine.

The hub's mean is of models that started from the copy ŵ the clients have, w ← ŵ + mean of updates,
so whatever w was ahead of ŵ is forgotten every round. `increments` adds the updates to the hub's
own w instead, w ← w + mean of updates, which is the same when nothing is cut off. The engine did
the former when this was written, and does the latter now.

COTERIE_DATA=… python experiments/bytes/pfedme-down/experiment.py

HAR as in bytes/har (seed 100: none of its splits), pFedMe with λ = 1, η = 1, step 0.03, R = 4, K =
5, T = 100; the largest differences, 8 bits. Accuracy of the data-poor clients' θ on validation
data, in %:

    up  100%  down  100%  mean of the models   96.37
    up    1%  down  100%  mean of the models   96.03
    up  100%  down    1%  mean of the models   91.25
    up    1%  down    1%  mean of the models   89.95
    up  100%  down    1%  increments           95.83
    up    1%  down    1%  increments           96.03
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import coterie

ROUNDS, LOCAL, INNER, LAM, ETA, STEP, BATCH = 100, 4, 5, 1.0, 1.0, 0.03, 20


def rows(split: Any) -> tuple[Any, Any]:
    """Features with a one for the intercept, and labels."""
    return np.concatenate([split.x, np.ones((len(split.x), 1), np.float32)], axis=1), split.y


def follow(copy: Any, x: Any, share: float) -> Any:
    """The public copies after a message each: the largest differences, in 8 bits."""
    if share == 1:
        return x
    ahead = x - copy
    size = jnp.abs(ahead)
    kept = jnp.where(size >= lax.top_k(size, round(share * x.shape[1]))[0][:, -1:], ahead, 0)
    scale = jnp.max(jnp.abs(kept), axis=1, keepdims=True) / 127
    return copy + jnp.round(kept / jnp.where(scale == 0, 1, scale)) * scale


def accuracy(fed: coterie.Federation, up: float, down: float, increments: bool) -> float:
    (x, y), n, classes = map(jnp.asarray, rows(fed.train)), fed.clients, fed.classes
    start, size, d = (
        jnp.asarray(fed.train.offsets[:-1]),
        jnp.asarray(np.diff(fed.train.offsets)),
        x.shape[1] * classes,
    )

    def local(w: Any, key: Any) -> Any:
        def one(state: Any, k: Any) -> Any:
            w, theta = state
            batch = start[:, None] + jax.random.randint(k, (n, BATCH), 0, size[:, None])
            seen, label = x[batch], jax.nn.one_hot(y[batch], classes)

            def step(_: Any, theta: Any) -> Any:
                error = (
                    jax.nn.softmax(jnp.einsum("nbd,ncd->nbc", seen, theta.reshape(n, classes, -1)))
                    - label
                )
                return theta - STEP * (
                    jnp.einsum("nbc,nbd->ncd", error, seen).reshape(n, -1) / BATCH
                    + LAM * (theta - w)
                )

            theta = lax.fori_loop(0, INNER, step, theta)
            return (w - ETA * LAM * (w - theta), theta), None

        return lax.scan(one, (w, w), jax.random.split(key, LOCAL))[0]

    def round_(state: Any, t: Any) -> Any:
        w, known, updates, _ = state
        known = follow(known, w[None], down)
        received = jnp.broadcast_to(known, (n, d))
        sent, theta = local(received, jax.random.fold_in(jax.random.key(0), t))
        updates = follow(updates, sent - received, up)
        return ((w if increments else known[0]) + updates.mean(0), known, updates, theta), None

    none = jnp.zeros((n, d))
    theta = jax.jit(
        lambda: lax.scan(round_, (none[0], none[:1], none, none), jnp.arange(ROUNDS))[0][3]
    )()
    held, labels = rows(fed.validation)
    owner = np.repeat(np.arange(n), np.diff(fed.validation.offsets))
    right = (
        np.einsum("bd,bcd->bc", held, np.asarray(theta).reshape(n, classes, -1)[owner]).argmax(1)
        == labels
    )
    return float(100 * np.mean([right[owner == k].mean() for k in fed.facts["downsampled"]]))


if __name__ == "__main__":
    har = coterie.load("har", seed=100, downsample=0.2)
    for up, down, increments in (
        (1, 1, False),
        (0.01, 1, False),
        (1, 0.01, False),
        (0.01, 0.01, False),
        (1, 0.01, True),
        (0.01, 0.01, True),
    ):
        how = "increments" if increments else "mean of the models"
        print(
            f"up {up:5.0%}  down {down:5.0%}  {how:20s} {accuracy(har, up, down, increments):.2f}",
            flush=True,
        )
