"""pFedMe: T. Dinh, Tran, Nguyen, *Personalized Federated Learning with Moreau Envelopes*: Table 1.

Values are the paper's: B = 20, R = 20, K = 5, β = 2, T = 800 (MNIST, 5 of 20 clients) or 600
(Synthetic, 10 of 100), λ and step sizes by column. pFedMe trains all clients in every round and
takes R·K gradients, the others R or 2R of the sampled ones: the column of gradients shows it, and
Local has the same number.

Under the protocol "paper" data are those of the published scripts: pictures scaled over test data
too, clients that share samples between training and test (`split = "pfedme-shared"`). Messages are
merged by samples, θ decays by 0.001, what the code calls personalised (w_k, by an aliasing slip)
stands beside θ_k, and the best round on test data counts, clients by their test samples. Per-FedAvg
stands there as its own paper has it and as the published code did when pFedMe appeared: it did not
go back before the second of its two steps (`order = "in-a-row"`; mended in March 2021). Both adapt
by one step on training data; the published code took two, the first of them on test data.
"honest": no sample is used twice, clients count alike, the last round counts, three seeds for the
paper's ten. Synthetic data are those of the published generator in both.
"""

from __future__ import annotations

from typing import NamedTuple

from coterie.runs.reproduce.base import Block, Config, Line, PaperTable, Protocol, known


class Column(NamedTuple):
    """What the paper prints for one data set and model."""

    name: str
    title: str
    data: str
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


MNIST: dict[Protocol, Config] = {
    "honest": {"name": "mnist", "clients": 20, "split": "pfedme", "validation": 0.0},
    "paper": {"name": "mnist", "clients": 20, "split": "pfedme-shared", "protocol": "paper"},
}
SYNTHETIC: Config = {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "protocol": "paper"}
DATA: dict[str, dict[Protocol, Config]] = {
    "mnist": MNIST,
    "synthetic": {"honest": SYNTHETIC, "paper": SYNTHETIC},
}
COLUMNS = (
    Column(
        "synthetic-mlr",
        "Synthetic(0.5, 0.5), MLR",
        "synthetic",
        {"name": "mlr"},
        *(600, 10, 20.0, 0.01, 0.02, (0.02, 0.002)),
        ("77.62 ± 0.11", "81.49 ± 0.09", "78.65 ± 0.25", "83.20 ± 0.06"),
    ),
    Column(
        "synthetic-dnn",
        "Synthetic(0.5, 0.5), DNN 60-20-10",
        "synthetic",
        {"name": "mlp", "hidden": [20]},
        *(600, 10, 30.0, 0.01, 0.03, (0.01, 0.001)),
        ("83.64 ± 0.22", "85.01 ± 0.10", "84.17 ± 0.35", "86.36 ± 0.15"),
    ),
    Column(
        "mnist-mlr",
        "MNIST, 20 clients, MLR",
        "mnist",
        {"name": "mlr"},
        *(800, 5, 15.0, 0.1, 0.02, (0.03, 0.003)),
        ("93.96 ± 0.02", "94.37 ± 0.04", "94.18 ± 0.06", "95.62 ± 0.04"),
    ),
    Column(
        "mnist-dnn",
        "MNIST, 20 clients, DNN 784-100-10",
        "mnist",
        {"name": "mlp", "hidden": [100]},
        *(800, 5, 30.0, 0.05, 0.02, (0.02, 0.001)),
        ("98.79 ± 0.03", "98.90 ± 0.02", "99.16 ± 0.03", "99.46 ± 0.01"),
    ),
)


def experiment_of(column: Column, protocol: Protocol, rounds: int, eval_every: int) -> Config:
    """Data, model and training of a column."""
    return {
        "data": DATA[column.data][protocol],
        "model": column.model,
        "training": {
            **{"rounds": rounds, "eval_every": eval_every, "batch_size": 20},
            "cohort": column.cohort,
        },
    }


def moreau(column: Column, protocol: Protocol, **options: float) -> Config:
    """pFedMe with R = 20 and K = 5, and other options."""
    made: Config = {"name": "pfedme", "local_rounds": 20, "inner_steps": 5, "lam": column.lam}
    made |= {"personal_lr": column.personal_lr, **options}
    if protocol == "paper":
        made |= {"weighting": "samples", "decay": 0.001, "keep_local": True}
    return made


def _block(column: Column, protocol: Protocol) -> Block:
    pfedme = moreau(column, protocol, beta=2.0, lr=0.01)
    mean = "samples" if protocol == "paper" else "uniform"
    fedavg = {"name": "fedavg", "local_steps": 20, "lr": column.fedavg, "weighting": mean}
    alpha, beta = column.per
    per = {"name": "per-fedavg", "local_steps": 20, "adapt_lr": alpha, "lr": beta}
    per["weighting"] = mean
    of_fedavg, of_per, gm, pm = column.numbers
    lines = [
        Line("FedAvg", fedavg, of_fedavg),
        Line("Per-FedAvg", per, of_per),
        Line("pFedMe (GM)", pfedme, gm, "global"),
        Line("pFedMe (PM)", pfedme, pm, "personal"),
    ]
    if protocol == "paper":
        lines.append(Line("pFedMe (w_k, the code's PM)", pfedme, pm, "local"))
        then = {**per, "order": "in-a-row"}
        lines.insert(2, Line("Per-FedAvg (in a row, the code's)", then, of_per))
    lines.append(Line("Local", {"name": "local", "local_steps": 20}, tuned=True))
    made = experiment_of(column, protocol, column.rounds, 20)
    return Block(column.name, column.title, made, tuple(lines))


def _table(protocol: Protocol) -> PaperTable:
    return PaperTable(
        "pfedme",
        "table-1",
        "Table 1: fine-tuned values",
        tuple(_block(column, protocol) for column in COLUMNS),
        "last" if protocol == "honest" else "best",
        seeds=3 if protocol == "honest" else 10,
        protocol=protocol,
    )


known(_table("honest"), _table("paper"))
