"""The models in PyTorch, and three ways to get their gradients: client by client, by `torch.func`
over stacked clients, and by hand over stacked clients.

A model is one flat tensor, (d) or (clients, d), and views of it, one per array: a projection or an
average is then one operation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from bench.problems import Problem


def views(flat: Any, problem: Problem) -> list[Any]:
    """The arrays of a model, or of stacked ones, in the memory of `flat`."""
    found, begin = [], 0
    for _, shape in problem.leaves():
        size = math.prod(shape)
        found.append(flat[..., begin : begin + size].view(*flat.shape[:-1], *shape))
        begin += size
    return found


def initial(problem: Problem) -> Any:
    """One model, flat, as PyTorch's layers begin."""
    torch.manual_seed(0)
    flat = torch.empty(problem.parameters)
    for (name, _), leaf in zip(problem.leaves(), views(flat, problem), strict=True):
        weights = dict(problem.leaves())[name.replace(".b", ".w")]
        bound = 1 / math.sqrt(math.prod(weights[1:]))
        leaf.uniform_(-bound, bound)
    return flat


def network(problem: Problem, leaves: Any, x: Any) -> Any:
    """Outputs (batch, classes) of one client's model."""
    pairs = list(zip(leaves[0::2], leaves[1::2], strict=True))
    if problem.model in ("lenet", "cnn"):
        padding = 2 if problem.model == "cnn" else 0
        x = x.view(-1, 1, problem.side, problem.side)
        for b, w in pairs[:2]:
            x = functional.conv2d(x, w, b, padding=padding)
            x = functional.max_pool2d(functional.relu(x), 2)
        x, pairs = x.flatten(1), pairs[2:]
    for i, (b, w) in enumerate(pairs):
        x = functional.linear(functional.relu(x) if i else x, w, b)
    return x


class OneByOne:
    """Autograd on one client's model."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def descend(self, leaves: Any, x: Any, y: Any, lr: float, first: Any = None) -> None:
        """leaf ← leaf − lr·∇f; `first` is done to the leaves between gradient and step."""
        with torch.enable_grad():
            loss = functional.cross_entropy(network(self.problem, leaves, x), y)
            gradient = torch.autograd.grad(loss, leaves)
        if first is not None:
            first()
        torch._foreach_add_(leaves, gradient, alpha=-lr)


class ByFunc:
    """`torch.func`: vmap of grad over stacked clients."""

    def __init__(self, problem: Problem) -> None:
        def loss(leaves: Any, x: Any, y: Any) -> Any:
            return functional.cross_entropy(network(problem, leaves, x), y)

        self.gradient = torch.func.vmap(torch.func.grad(loss))

    def descend(self, leaves: Any, x: Any, y: Any, lr: float, first: Any = None) -> None:
        gradient = self.gradient(tuple(leaves), x, y)
        if first is not None:
            first()
        torch._foreach_add_(leaves, gradient, alpha=-lr)


class ByHand:
    """Batched products over stacked clients, the gradient written out, and the step taken by the
    product that makes the gradient. Convolutions are grouped ones, with autograd.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def descend(self, leaves: Any, x: Any, y: Any, lr: float, first: Any = None) -> None:
        if self.problem.model in ("lenet", "cnn"):
            return self._convolutions(leaves, x, y, lr, first)
        pairs = list(zip(leaves[0::2], leaves[1::2], strict=True))
        z = torch.baddbmm(pairs[0][0].unsqueeze(1), x, pairs[0][1].transpose(1, 2))
        d, rest = backward(pairs[1:], z, y)
        if first is not None:
            first()
        for (b, w), inputs, delta in [(pairs[0], x, d), *rest]:
            step(b, w, inputs, delta, lr)
        return None

    def _convolutions(self, leaves: Any, x: Any, y: Any, lr: float, first: Any) -> None:
        problem, clients = self.problem, len(x)
        side, padding = problem.side, 2 if problem.model == "cnn" else 0
        pairs = list(zip(leaves[0::2], leaves[1::2], strict=True))
        with torch.enable_grad():
            z = x.view(clients, -1, side, side).transpose(0, 1)
            for b, w in pairs[:2]:
                z = functional.conv2d(
                    z, w.flatten(0, 1), b.flatten(), padding=padding, groups=clients
                )
                z = functional.max_pool2d(functional.relu(z), 2)
            z = z.view(len(z), clients, -1).transpose(0, 1)
            for i, (b, w) in enumerate(pairs[2:]):
                z = functional.relu(z) if i else z
                z = torch.baddbmm(b.unsqueeze(1), z, w.transpose(1, 2))
            loss = functional.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
            gradient = torch.autograd.grad(loss / problem.batch, leaves)
        if first is not None:
            first()
        torch._foreach_add_(leaves, gradient, alpha=-lr)


def backward(pairs: Any, z: Any, y: Any) -> tuple[Any, list[Any]]:
    """From the outputs z (clients, batch, width) of the first layer: ∂f/∂z, and for every later
    layer its arrays, its inputs and the derivative by its outputs.
    """
    inputs, outputs = [], z
    for b, w in pairs:
        inputs.append(functional.relu(outputs))
        outputs = torch.baddbmm(b.unsqueeze(1), inputs[-1], w.transpose(1, 2))
    d = torch.softmax(outputs, 2)
    d.scatter_add_(2, y.unsqueeze(2), torch.full_like(d[..., :1], -1.0))
    d /= y.shape[1]
    found = []
    for (b, w), entered in reversed(list(zip(pairs, inputs, strict=True))):
        found.append(((b, w), entered, d))
        d = torch.bmm(d, w) * (entered > 0)
    return d, found


def step(b: Any, w: Any, inputs: Any, delta: Any, lr: float) -> None:
    """One gradient step of a dense layer, in place."""
    w.baddbmm_(delta.transpose(1, 2), inputs, alpha=-lr)
    b.sub_(delta.sum(1), alpha=lr)
