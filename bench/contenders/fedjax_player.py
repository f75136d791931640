"""FedJAX: its own federated averaging, on data in memory."""

from __future__ import annotations

from typing import Any

import fedjax
import jax
import jax.numpy as jnp

from bench.problems import LR, Problem, data


def network(problem: Problem) -> Any:
    """init and apply of a dense model."""
    sizes = problem.sizes

    def init(rng: Any) -> Any:
        pairs = list(zip(sizes, sizes[1:], strict=False))
        return [
            {"w": jax.random.normal(key, (a, b)) / a**0.5, "b": jnp.zeros(b)}
            for key, (a, b) in zip(jax.random.split(rng, len(pairs)), pairs, strict=True)
        ]

    def apply(params: Any, batch: Any, rng: Any = None) -> Any:
        h = batch["x"]
        for i, layer in enumerate(params):
            h = (jax.nn.relu(h) if i else h) @ layer["w"] + layer["b"]
        return h

    return init, apply


class Player:
    """What a worker drives (worker.py)."""

    def __init__(self, problem: Problem, kind: str = "") -> None:
        x, y = data(problem)
        init, apply = network(problem)
        loss = lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(
            batch["y"], outputs
        )
        model = fedjax.Model(
            init=init,
            apply_for_train=apply,
            apply_for_eval=apply,
            train_loss=loss,
            eval_metrics={},
        )
        self.algorithm = fedjax.algorithms.fed_avg.federated_averaging(
            fedjax.model_grad(model),
            fedjax.optimizers.sgd(LR),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(
                batch_size=problem.batch, num_epochs=None, num_steps=problem.steps
            ),
        )
        self.state = self.algorithm.init(init(jax.random.PRNGKey(0)))
        self.sets = [fedjax.ClientDataset({"x": x[k], "y": y[k]}) for k in range(problem.clients)]
        self.key = jax.random.PRNGKey(1)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.key, *keys = jax.random.split(self.key, len(self.sets) + 1)
            clients = [(b"%d" % k, held, keys[k]) for k, held in enumerate(self.sets)]
            self.state, _ = self.algorithm.apply(self.state, clients)
        jax.block_until_ready(self.state.params)
