"""The methods in PyTorch, for one client or for all clients stacked: `flat` is a client's model
(d) or all models (clients, d), and `draw(r)` gives the mini-batch of step r.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from bench.contenders.torch_nets import backward, step, views
from bench.problems import ETA, LAM, LR, OUTER_LR, Problem

EPS = torch.finfo(torch.float32).eps


def fedavg(problem: Problem, way: Any, flat: Any, draw: Any) -> None:
    """R steps from w; also what a client of FedU does."""
    leaves = leaves_of(flat, problem)
    for r in range(problem.steps):
        way.descend(leaves, *draw(r), LR)


def pfedme(problem: Problem, way: Any, theta: Any, w: Any, draw: Any) -> None:
    """θ by K steps on each batch, w by one; both in place."""
    lam, leaves = LAM["pfedme"], leaves_of(theta, problem)
    hold = lambda: theta.lerp_(w, LR * lam)  # θ − lr·λ(θ − w)
    for r in range(problem.steps):
        batch = draw(r)
        for _ in range(problem.inner):
            way.descend(leaves, *batch, LR, hold)
        w.lerp_(theta, OUTER_LR * lam)


def pfedme_gram(problem: Problem, theta: Any, w: Any, draw: Any) -> None:
    """The same for stacked clients, the first layer followed by its outputs: with the Gram matrix
    of the batch, K steps need four products with it instead of 2K.
    """
    lam, keep = LAM["pfedme"], 1 - LR * LAM["pfedme"]
    leaves, anchors = views(theta, problem), views(w, problem)
    alpha, gamma = 1.0, 0.0
    for _ in range(problem.inner):
        alpha, gamma = keep * alpha, keep * gamma + LR * lam
    (b, v), (b_w, v_w) = leaves[:2], anchors[:2]
    pairs = list(zip(leaves[2::2], leaves[3::2], strict=True))
    begin = b[0].numel() + v[0].numel()
    rest_of_it = theta[:, begin:]
    for r in range(problem.steps):
        x, y = draw(r)
        z = torch.baddbmm(b.unsqueeze(1), x, v.transpose(1, 2))
        pull = torch.baddbmm(b_w.unsqueeze(1), x, v_w.transpose(1, 2)).mul_(LR * lam)
        gram = torch.bmm(x, x.transpose(1, 2)).add_(1.0)
        along = torch.zeros_like(z)
        for _ in range(problem.inner):
            d, rest = backward(pairs, z, y)
            rest_of_it.lerp_(w[:, begin:], LR * lam)
            for (b_, w_), inputs, delta in rest:
                step(b_, w_, inputs, delta, LR)
            z = z.mul_(keep).add_(pull).baddbmm_(gram, d, alpha=-LR)
            along.mul_(keep).add_(d)
        for leaf, anchor in ((b, b_w), (v, v_w)):
            leaf.mul_(alpha).add_(anchor, alpha=gamma)
        step(b, v, x, along, LR)
        w.lerp_(theta, OUTER_LR * lam)


def ditto(problem: Problem, way: Any, w: Any, x: Any, draw: Any) -> None:
    """FedAvg's steps on w, and as many on x, held near the w that came in."""
    received = w.clone()
    batches = [draw(r) for r in range(problem.steps)]
    fedavg(problem, way, w, batches.__getitem__)
    leaves = leaves_of(x, problem)
    hold = lambda: x.lerp_(received, LR * LAM["ditto"])
    for batch in batches:
        way.descend(leaves, *batch, LR, hold)


def lp_proj(problem: Problem, way: Any, x: Any, w: Any, p_matrix: Any, draw: Any) -> None:
    """x by K steps on each batch, w̃ (dsub numbers a client) by one; P is (dsub, d)."""
    one, lam, leaves = problem.method == "lp-proj-1", LAM[problem.method], leaves_of(x, problem)

    def inside() -> Any:
        v = functional.linear(x, p_matrix) - w
        if not one:
            return v
        rounding = 16 * EPS * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.sign(torch.where(v.abs() <= rounding, 0.0, v))

    def back() -> None:
        v = inside()
        if x.ndim == 1:
            x.addmv_(p_matrix.T, v, alpha=-LR * lam)
        else:
            x.addmm_(v, p_matrix, alpha=-LR * lam)

    for r in range(problem.steps):
        batch = draw(r)
        for _ in range(problem.inner):
            way.descend(leaves, *batch, LR, back)
        w.add_(inside(), alpha=OUTER_LR * lam)


def mixing(clients: int, steps: int, graph: Any = None) -> Any:
    """FedU's pull as one matrix: I − μRη·L; on all pairs unless a graph's weights are given."""
    weights = torch.ones(clients, clients) - torch.eye(clients) if graph is None else graph
    return torch.eye(clients) - LR * steps * ETA * (torch.diag(weights.sum(1)) - weights)


def leaves_of(flat: Any, problem: Problem) -> list[Any]:
    """Views that autograd can take gradients by."""
    return [leaf.requires_grad_() for leaf in views(flat, problem)]
