"""coterie: a `Simulator`, as `simulate` drives it, without evaluations."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import coterie
from bench.problems import ETA, LAM, LR, OUTER_LR, Problem, data
from coterie.core.compilation import Compilations
from coterie.data.federation import Federation, Split


def method_of(problem: Problem) -> Any:
    name, steps = problem.method, {"local_steps": problem.steps}
    if name == "fedavg":
        return coterie.FedAvg(lr=LR, **steps)
    if name == "fedu":
        return coterie.FedU(lr=LR, eta=ETA, **steps)
    if name == "ditto":
        return coterie.Ditto(lr=LR, personal_lr=LR, lam=LAM[name], **steps)
    options = {
        "lam": LAM[name],
        "lr": OUTER_LR,
        "personal_lr": LR,
        "local_rounds": problem.steps,
        "inner_steps": problem.inner,
        "trains": "sampled" if problem.cohort else "all",
    }
    if name == "pfedme":
        return coterie.PFedMe(**options)
    kind = coterie.LpProj1 if name == "lp-proj-1" else coterie.LpProj2
    return kind(**options, dsub=problem.dsub)


def model_of(problem: Problem) -> Any:
    if problem.model != "mlp":
        return problem.model
    return coterie.get_model("mlp", {"hidden": ",".join(map(str, problem.hidden))})


def federation(problem: Problem) -> Federation:
    x, y = data(problem)
    n, each = y.shape
    offsets = np.arange(n + 1, dtype=np.int64)
    train = Split(x.reshape(n * each, -1), y.reshape(-1).astype(np.int32), offsets * each)
    none = Split(train.x[:0], train.y[:0], offsets * 0)
    return Federation("random", train, none, none, "classification", problem.classes)


def simulator_of(problem: Problem, **training: Any) -> Any:
    options = coterie.Training(
        rounds=1_000_000,
        eval_every=1_000_000,
        batch_size=problem.batch,
        cohort=problem.cohort,
        **training,
    )
    return coterie.Simulator(method_of(problem), federation(problem), model_of(problem), options)


class Player:
    """What a worker drives (worker.py)."""

    def __init__(self, problem: Problem, kind: str = "") -> None:
        self.problem = problem
        with Compilations() as compilations:
            self.simulator = simulator_of(problem)
            self.rounds(1)
        self.compiling = compilations.seconds

    def rounds(self, count: int) -> None:
        end = self.simulator.t + count
        while self.simulator.t < end:
            self.simulator.advance(end - self.simulator.t)
        jax.block_until_ready(self.simulator.store.rows)

    def facts(self) -> dict[str, Any]:
        from bench.bounds import executed, machine_peaks

        return {
            "compiling": self.compiling,
            "devices": jax.device_count(),
            "at_once": self.simulator.spec.at_once,
            **executed(self.simulator, self.problem),
            **machine_peaks(),
        }
