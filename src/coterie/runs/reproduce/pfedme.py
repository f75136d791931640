"""pFedMe: T. Dinh, Tran, Nguyen, *Personalized Federated Learning with Moreau Envelopes*: Table 1.

Values are the paper's: B = 20, R = 20, K = 5, β = 2, T = 800 (MNIST, 5 of 20 clients) or 600
(Synthetic, 10 of 100), λ and step sizes by column. Data as the published code has them
(`protocol = "paper"`), merged by samples as there. The paper reports the best round on test data,
clients counted by their test samples; ours in the last round, by clients, stands beside it. pFedMe
trains all clients in every round and takes R·K gradients, the others R or 2R of the sampled ones:
the column of gradients shows it, and Local has the same number.
"""

from __future__ import annotations

from typing import NamedTuple

from coterie.runs.reproduce.base import Block, Config, Line, PaperTable, known


class Column(NamedTuple):
    """What the paper prints for one data set and model."""

    name: str
    title: str
    data: Config
    model: Config
    rounds: int
    cohort: int
    lam: float
    personal_lr: float
    fedavg: float
    """Its step size."""
    per: tuple[float, float]
    """Per-FedAvg's α̂ and β̂."""
    numbers: tuple[str, str, str, str]
    """FedAvg, Per-FedAvg, GM, PM."""


MNIST: Config = {"name": "mnist", "clients": 20, "split": "pfedme", "protocol": "paper"}
SYNTHETIC: Config = {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "protocol": "paper"}
COLUMNS = (
    Column(
        "synthetic-mlr",
        "Synthetic(0.5, 0.5), MLR",
        SYNTHETIC,
        {"name": "mlr"},
        *(600, 10, 20.0, 0.01, 0.02, (0.02, 0.002)),
        ("77.62 ± 0.11", "81.49 ± 0.09", "78.65 ± 0.25", "83.20 ± 0.06"),
    ),
    Column(
        "synthetic-dnn",
        "Synthetic(0.5, 0.5), DNN 60-20-10",
        SYNTHETIC,
        {"name": "mlp", "hidden": [20]},
        *(600, 10, 30.0, 0.01, 0.03, (0.01, 0.001)),
        ("83.64 ± 0.22", "85.01 ± 0.10", "84.17 ± 0.35", "86.36 ± 0.15"),
    ),
    Column(
        "mnist-mlr",
        "MNIST, 20 clients, MLR",
        MNIST,
        {"name": "mlr"},
        *(800, 5, 15.0, 0.1, 0.02, (0.03, 0.003)),
        ("93.96 ± 0.02", "94.37 ± 0.04", "94.18 ± 0.06", "95.62 ± 0.04"),
    ),
    Column(
        "mnist-dnn",
        "MNIST, 20 clients, DNN 784-100-10",
        MNIST,
        {"name": "mlp", "hidden": [100]},
        *(800, 5, 30.0, 0.05, 0.02, (0.02, 0.001)),
        ("98.79 ± 0.03", "98.90 ± 0.02", "99.16 ± 0.03", "99.46 ± 0.01"),
    ),
)


def _block(column: Column) -> Block:
    inner = {"local_rounds": 20, "inner_steps": 5, "beta": 2.0, "weighting": "samples"}
    pfedme = {"name": "pfedme", **inner, "lam": column.lam, "lr": 0.01}
    pfedme["personal_lr"] = column.personal_lr
    fedavg = {"name": "fedavg", "local_steps": 20, "lr": column.fedavg}
    alpha, beta = column.per
    per = {"name": "per-fedavg", "local_steps": 20, "adapt_lr": alpha, "lr": beta}
    labels = ("FedAvg", "Per-FedAvg", "pFedMe (GM)", "pFedMe (PM)")
    methods = (fedavg, per, pfedme, pfedme)
    views = (None, None, "global", "personal")
    lines = [
        Line(label, method, paper, view)
        for label, method, paper, view in zip(labels, methods, column.numbers, views, strict=True)
    ]
    lines.append(Line("Local", {"name": "local", "local_steps": 20}, tuned=True))
    training = {"rounds": column.rounds, "eval_every": 20, "batch_size": 20}
    return Block(
        column.name,
        column.title,
        {
            "data": column.data,
            "model": column.model,
            "training": {**training, "cohort": column.cohort},
        },
        tuple(lines),
    )


known(
    PaperTable(
        "pfedme",
        "table-1",
        "Table 1: fine-tuned values",
        tuple(_block(column) for column in COLUMNS),
        "best",
        seeds=10,
    )
)
