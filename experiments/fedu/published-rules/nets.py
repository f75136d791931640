"""Softmax regression and a perceptron in NumPy, with their gradients; nothing of coterie's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Net = list[Array]
"""Weights and biases in turn, layer by layer, as the published models order them."""


def init(sizes: tuple[int, ...]) -> Net:
    """PyTorch's usual start: uniform within 1/√(inputs). One for all seeds, as the code has it."""
    rng, net = np.random.default_rng(0), []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        bound = inputs**-0.5
        net.append(rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32))
        net.append(rng.uniform(-bound, bound, outputs).astype(np.float32))
    return net


def outputs(net: Net, x: Array) -> tuple[list[Array], Array]:
    """The inputs of every layer, and the last layer's outputs."""
    seen = [x]
    for i in range(0, len(net) - 2, 2):
        seen.append(np.maximum(seen[-1] @ net[i] + net[i + 1], 0))
    return seen, seen[-1] @ net[-2] + net[-1]


def correct(net: Net, x: Array, y: NDArray[np.int64]) -> int:
    return int((outputs(net, x)[1].argmax(1) == y).sum())


def gradient(net: Net, x: Array, y: NDArray[np.int64]) -> Net:
    """Of the mean cross-entropy of a batch."""
    seen, z = outputs(net, x)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    back, found = p / len(y), []
    for i in range(len(net) - 2, -1, -2):
        found = [seen[i // 2].T @ back, back.sum(0), *found]
        back = (back @ net[i].T) * (seen[i // 2] > 0)
    return found
