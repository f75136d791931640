"""Rounds in PyTorch: a loop over clients, `torch.func`, stacked by hand, and the last with the Gram
matrix.
"""

from __future__ import annotations

from typing import Any

import torch

from bench.contenders import torch_methods as methods
from bench.contenders.torch_nets import ByFunc, ByHand, OneByOne, initial
from bench.problems import Problem, data


class Player:
    """What a worker drives (worker.py)."""

    def __init__(self, problem: Problem, kind: str) -> None:
        x, y = data(problem)
        self.rounds_of = (Loop if kind == "loop" else Stacked)(problem, kind, initial(problem))
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)
        self.problem = problem

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def rounds(self, count: int) -> None:
        problem = self.problem
        n, kept = problem.trainers, problem.steps
        with torch.no_grad():
            for _ in range(count):
                who = torch.randperm(problem.clients)[:n].sort().values
                rows = torch.randint(0, problem.samples, (n, kept, problem.batch))
                self.rounds_of.one(self.x, self.y, who, rows)


class Stacked:
    """All clients of a round in one tensor."""

    def __init__(self, problem: Problem, kind: str, first: Any, projection: Any = None) -> None:
        self.problem, self.gram = problem, kind == "gram"
        self.way = ByFunc(problem) if kind == "func" else ByHand(problem)
        self.w = first.clone()
        self.own = None
        if problem.method in ("fedu", "ditto") or problem.method.startswith("lp-"):
            self.own = first.repeat(problem.clients, 1)
        self.mixing = methods.mixing(problem.trainers, problem.steps)
        if problem.method.startswith("lp-"):
            self.projection = unit_rows(problem) if projection is None else projection
            self.w = self.projection @ first

    def one(self, x: Any, y: Any, who: Any, rows: Any) -> None:
        taken = who.unsqueeze(1)
        self.play(who, lambda r: (x[taken, rows[:, r]], y[taken, rows[:, r]]))

    def play(self, who: Any, draw: Any) -> None:
        """One round of the clients `who`."""
        problem, way, n = self.problem, self.way, len(who)
        everybody = n == problem.clients
        own = self.own if self.own is None or everybody else self.own[who]
        w = self.w.repeat(n, 1)
        if problem.method == "fedavg":
            methods.fedavg(problem, way, w, draw)
        elif problem.method == "pfedme":
            own = w.clone()
            if self.gram:
                methods.pfedme_gram(problem, own, w, draw)
            else:
                methods.pfedme(problem, way, own, w, draw)
            self.theta = own
        elif problem.method == "ditto":
            methods.ditto(problem, way, w, own, draw)
        elif problem.method == "fedu":
            methods.fedavg(problem, way, own, draw)
            own = self.mixing @ own
        else:
            methods.lp_proj(problem, way, own, w, self.projection, draw)
        if problem.method != "fedu":
            self.w = w.mean(0)
        if self.own is not None:
            if everybody:
                self.own = own
            else:
                self.own[who] = own


class Loop:
    """One client after the other."""

    def __init__(self, problem: Problem, kind: str, first: Any, projection: Any = None) -> None:
        self.problem, self.way = problem, OneByOne(problem)
        self.w = first.clone()
        self.own = [first.clone() for _ in range(problem.clients)]
        self.theta = list(self.own)
        self.mixing = methods.mixing(problem.trainers, problem.steps)
        if problem.method.startswith("lp-"):
            self.projection = unit_rows(problem) if projection is None else projection
            self.w = self.projection @ first

    def one(self, x: Any, y: Any, who: Any, rows: Any) -> None:
        problem, way, sent = self.problem, self.way, []
        for i, k in enumerate(who.tolist()):
            draw = lambda r, i=i, k=k: (x[k, rows[i, r]], y[k, rows[i, r]])
            w = self.w.clone()
            if problem.method == "fedavg":
                methods.fedavg(problem, way, w, draw)
            elif problem.method == "pfedme":
                self.theta[k] = w.clone()
                methods.pfedme(problem, way, self.theta[k], w, draw)
            elif problem.method == "ditto":
                methods.ditto(problem, way, w, self.own[k], draw)
            elif problem.method == "fedu":
                w = self.own[k]
                methods.fedavg(problem, way, w, draw)
            else:
                methods.lp_proj(problem, way, self.own[k], w, self.projection, draw)
            sent.append(w)
        if problem.method == "fedu":
            for k, mixed in zip(who.tolist(), self.mixing @ torch.stack(sent), strict=True):
                self.own[k] = mixed.contiguous()
        else:
            self.w = torch.stack(sent).mean(0)


def unit_rows(problem: Problem) -> Any:
    """P with Gaussian rows of length 1."""
    p = torch.randn(problem.dsub, problem.parameters)
    return p / torch.linalg.vector_norm(p, dim=1, keepdim=True)
