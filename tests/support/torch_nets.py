"""Small PyTorch modules and their native twins."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie.engine.simulate import Result, Simulator
from coterie.models.dense import Perceptron

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch import nn  # noqa: E402

RUN = {"rounds": 3, "eval_every": 3, "sampling": "full"}
"""All of a client's samples and padding in every batch: what is drawn is no matter here, and
drawing takes longest to compile.
"""


class Net(nn.Module):
    """The native perceptron with one hidden layer. Its layers are named against the alphabet."""

    def __init__(
        self, inputs: int = 4, hidden: int = 5, outputs: int = 3, middle: nn.Module | None = None
    ) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.hidden = nn.Linear(inputs, hidden)
        self.middle = middle or nn.Identity()
        self.final = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.final(self.middle(torch.relu(self.hidden(x))))


def native(module: nn.Module, inputs: int = 4, outputs: int = 3, l2: float = 0.0) -> coterie.Model:
    """coterie's own perceptron with the module's initial values, in a tree of the same names (a
    projection is drawn leaf by leaf).
    """
    mlp = Perceptron(hidden="5").build((inputs,), outputs)
    rename = lambda p: {
        f"layer{i}": {"w": p[name]["weight"], "b": p[name]["bias"]}
        for i, name in enumerate(("hidden", "final"))
    }
    return coterie.Model(
        coterie.torch_model(module).init,
        lambda p, x: mlp.apply(rename(p), x),
        class_major=True,
        l2=l2,
    )


def same(one: Result, two: Result, rtol: float, atol: float) -> None:
    np.testing.assert_allclose(
        one.simulator.all_models().flat(), two.simulator.all_models().flat(), rtol=rtol, atol=atol
    )
    for a, b in zip(one.snapshots, two.snapshots, strict=True):
        for split in a.scores:
            np.testing.assert_allclose(
                a.scores[split].loss, b.scores[split].loss, rtol=10 * rtol, atol=10 * atol
            )
            np.testing.assert_array_equal(a.scores[split].score, b.scores[split].score)


def local(method: coterie.Method, received: Any, objective: Any) -> Any:
    """What a client without a memory sends, in a program of its own, as a deployment would
    have it.
    """
    return jax.jit(lambda m, r, o: m.local(r, (), o))(method, received, objective).message.flat()


def alone(
    method: coterie.Method,
    fed: coterie.Federation,
    model: coterie.Model,
    precision: str = "float32",
    client: int = 1,
) -> Any:
    """What a client of a federation sends in the first round."""
    sim = Simulator(method, fed, model, coterie.Training(sampling="full", precision=precision))
    with sim.precision():
        return np.asarray(local(sim.method, sim.template, sim.now().objective(client)))
