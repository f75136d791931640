"""What `python -m bench` times against coterie computes the same thing: one round of the PyTorch
contenders with our initial models and our batches gives our models.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from bench.problems import Problem

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"clients": 4, "batch": 6, "samples": 24, "steps": 3}
DENSE: dict[str, dict[str, Any]] = {
    "mlr": {"features": 9, "classes": 3},
    "mlp": {"features": 9, "hidden": (5,), "classes": 3},
}
PROBLEMS = [
    Problem(method, model, **DENSE[model], **SMALL, **extra)
    for model in DENSE
    for method, extra in (
        ("fedavg", {}),
        ("fedu", {}),
        ("ditto", {}),
        ("pfedme", {"inner": 4}),
        ("lp-proj-1", {"inner": 4, "dsub": 7}),
        ("lp-proj-2", {"inner": 4, "dsub": 7}),
    )
]
PROBLEMS += [
    Problem("fedavg", "lenet", features=256, **SMALL),
    Problem("fedavg", "cnn", features=64, **SMALL | {"clients": 2, "steps": 1}),
]
ROUNDS = 2


def flattened(model: Any, problem: Problem, stacked: bool = False) -> Any:
    """Our models as rows of numbers, a convolution's weights in PyTorch's order."""
    import jax

    rows = []
    for leaf, (_, shape) in zip(jax.tree.leaves(model), problem.leaves(), strict=True):
        leaf = np.asarray(leaf) if stacked else np.asarray(leaf)[None]
        if len(shape) == 4:
            outputs, channels, height, width = shape
            leaf = leaf.reshape(-1, outputs, height, width, channels).transpose(0, 1, 4, 2, 3)
        rows.append(leaf.reshape(len(leaf), -1))
    return np.concatenate(rows, 1)


def after(problem: Problem, kind: str, simulator: Any, batches: Any) -> dict[str, Any]:
    """The models after as many rounds as there are batches, by PyTorch."""
    from bench.contenders.torch_player import Loop, Stacked

    first = torch.from_numpy(flattened(simulator.template, problem)[0].copy())
    p = None
    if problem.dsub:
        parts = [np.asarray(part) for part in simulator.method.drawn.parts]
        p = torch.from_numpy(np.concatenate(parts, 1))
    everybody = torch.arange(problem.clients)
    player = (Loop if kind == "loop" else Stacked)(problem, kind, first, p)
    with torch.no_grad():
        for x, y in batches:
            x, y = torch.from_numpy(x), torch.from_numpy(y)
            if kind == "loop":
                rows = torch.arange(problem.batch * problem.steps).view(problem.steps, -1)
                x, y = x.flatten(1, 2), y.flatten(1, 2)
                player.one(x, y, everybody, rows.expand(problem.clients, -1, -1))
            else:
                player.play(everybody, lambda r, x=x, y=y: (x[:, r], y[:, r]))
    own = player.theta if problem.method == "pfedme" else player.own
    stacked = torch.stack(list(own)) if own is not None else None
    return {"shared": player.w.numpy(), "own": None if stacked is None else stacked.numpy()}


def ours(problem: Problem) -> tuple[Any, list[Any], dict[str, Any]]:
    """A simulator, the batches of its rounds (clients, steps, batch, …), and its models then."""
    import jax

    from bench.contenders.ours import simulator_of

    simulator, batches = simulator_of(problem), []
    for _ in range(ROUNDS):
        drawn = [
            [simulator.now().objective(k).batch(r) for r in range(problem.steps)]
            for k in range(problem.clients)
        ]
        stack = lambda field, drawn=drawn: np.array(
            [[np.asarray(getattr(b, field)) for b in of] for of in drawn]
        )
        assert stack("weight").all()
        batches.append((stack("x"), stack("y").astype(np.int64)))
        assert simulator.advance(1) == 1
    as_numbers = partial(flattened, problem=problem)
    shared = own = None
    if problem.method != "fedu":
        hub = simulator.hub
        shared = as_numbers(hub)[0] if not problem.dsub else np.asarray(jax.tree.leaves(hub)[0])
    if problem.method != "fedavg":
        own = as_numbers(simulator.all_models("personal"), stacked=True)
    return simulator, batches, {"shared": shared, "own": own}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.method}-{p.model}")
def test_pytorch_computes_our_rounds(problem: Problem) -> None:
    simulator, batches, mine = ours(problem)
    kinds = ["stacked", "func", "loop"] + ["gram"] * (problem.method == "pfedme")
    begun = flattened(simulator.template, problem)[0]
    for kind in kinds:
        theirs = after(problem, kind, simulator, batches)
        for name in ("shared", "own"):
            if mine[name] is None:
                continue
            np.testing.assert_allclose(
                theirs[name], mine[name], atol=1e-4, rtol=0, err_msg=f"{kind}, {name}"
            )
    # The comparison would say nothing about models that hardly move.
    moved = mine["own"][0] if mine["own"] is not None else mine["shared"]
    assert np.abs(moved - begun).max() > 3e-3


def test_our_models_have_the_arrays_that_the_contenders_are_given() -> None:
    from bench.contenders.ours import model_of
    from bench.problems import ROWS
    from coterie.data.shape import ProblemShape
    from coterie.models.build import build_model

    for problem in ROWS:
        inputs = (problem.features,)
        shape = ProblemShape("classification", inputs, problem.classes, problem.clients, 1)
        assert build_model(model_of(problem), shape).parameters() == problem.parameters
