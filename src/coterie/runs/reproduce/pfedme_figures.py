"""pFedMe, Figures 1 to 7: test accuracy and training loss over rounds.

Figures 1 to 5 change one of R, K, |D|, λ and β on MNIST (5 of 20 clients, η = 0.005), all others
as the captions have them: |D| = 20, λ = 15, R = 20, K = 5, β = 1. Figures 6 and 7 compare the
methods with the same η = 0.005 and β = 1; the text says by how many points the personalised model
is ahead, which is compared. What the text does not say: the values of the curves (ours are in the
figures), and T of Figures 1 to 5 (300 here). The step size of θ is that of the published commands
(github.com/CharlieDinh/pFedMe, README): 0.09 in Figures 1 to 5, where η is 0.003 for β = 4, and in
Figure 6 with the DNN. Per-FedAvg's α̂ is 0.005 there, like η, and its β̂ 0.001, which is taken under
the protocol "paper", where the code's Per-FedAvg stands beside it, as in Table 1; "honest" has the
same η for all, as the paper says.
"""

from __future__ import annotations

from typing import Any

from coterie.runs.reproduce.base import (
    ACCURACY,
    BEHIND,
    TRAIN_LOSS,
    Block,
    Config,
    Line,
    PaperTable,
    Protocol,
    known,
)
from coterie.runs.reproduce.pfedme import COLUMNS, Column, experiment_of, moreau

ROUNDS = 300
STEP = 0.09
"""Of θ in Figures 1 to 5, and in Figure 6 with the DNN."""
SWEPT: dict[int, tuple[str, str, tuple[Any, ...]]] = {
    1: ("R", "local_rounds", (5, 10, 20, 40)),
    2: ("K", "inner_steps", (1, 3, 5, 7)),
    3: ("|D|", "batch_size", (5, 20, 50, 100)),
    4: ("λ", "lam", (1.0, 5.0, 15.0, 30.0)),
    5: ("β", "beta", (1.0, 2.0, 4.0)),
}
"""By figure: the symbol, the option, and the values."""
AHEAD: dict[str, tuple[str, str, str]] = {
    "mnist-mlr": ("1.1", "1.3", "1.5"),
    "mnist-dnn": ("0.9", "0.9", "1.3"),
    "synthetic-mlr": ("6.1", "3.8", "5.2"),
    "synthetic-dnn": ("3.9", "0.7", "3.1"),
}
"""Points by which PM is ahead of GM, Per-FedAvg and FedAvg in Figures 6 and 7."""


def _with_losses(experiment: Config) -> Config:
    return {**experiment, "training": {**experiment["training"], "train_metrics": True}}


def _lines(column: Column, figure: int) -> tuple[Line, ...]:
    symbol, option, values = SWEPT[figure]
    base = moreau(column, "honest", lr=0.005, beta=1.0)
    base |= {"lam": 15.0, "personal_lr": STEP}
    found = []
    for value in values:
        method, training = {**base, option: value}, {}
        if option == "beta" and value == 4:
            method["lr"] = 0.003
        if option == "batch_size":
            method, training = base, {option: value}
        for label, view in (("PM", "personal"), ("GM", "global")):
            found.append(
                Line(
                    *(label, method, "", view),
                    column=f"{symbol} = {value:g}",
                    x=float(value),
                    training=training,
                )
            )
    return tuple(found)


def _swept(figure: int) -> PaperTable:
    symbol = SWEPT[figure][0]
    blocks = tuple(
        Block(
            column.name,
            column.title,
            _with_losses(experiment_of(column, "honest", ROUNDS, 10)),
            _lines(column, figure),
            "the values of the curves and T are not in the paper's text",
            alone=False,
        )
        for column in COLUMNS
        if column.data == "mnist"
    )
    return PaperTable(
        "pfedme",
        f"figure-{figure}",
        f"Figure {figure}: the effect of {symbol}",
        blocks,
        measures=(ACCURACY, TRAIN_LOSS),
        drawn="curves",
        axis=symbol,
    )


def _same(column: Column, protocol: Protocol) -> Block:
    """All methods with the same parameters."""
    mean = "samples" if protocol == "paper" else "uniform"
    pfedme = moreau(column, protocol, lr=0.005, beta=1.0)
    pfedme["lam"] = 15.0 if column.data == "mnist" else 20.0
    if column.name == "mnist-dnn":
        pfedme["personal_lr"] = STEP
    sgd: Config = {"local_steps": 20, "lr": 0.005, "weighting": mean}
    meta: Config = {"name": "per-fedavg", **sgd, "adapt_lr": 0.005}
    if protocol == "paper":
        meta["lr"] = 0.001
    gm, per, fedavg = AHEAD[column.name]
    lines = [
        Line("pFedMe (PM)", pfedme, view="personal"),
        Line("pFedMe (GM)", pfedme, view="global", more={BEHIND: gm}),
        Line("Per-FedAvg", meta, more={BEHIND: per}),
        Line("FedAvg", {"name": "fedavg", **sgd}, more={BEHIND: fedavg}),
        Line("Local", {"name": "local", "local_steps": 20, "lr": 0.005}),
    ]
    if protocol == "paper":
        then = {**meta, "order": "in-a-row"}
        lines.insert(3, Line("Per-FedAvg (in a row, the code's)", then, more={BEHIND: per}))
    experiment = _with_losses(experiment_of(column, protocol, column.rounds, 20))
    told = "α̂ is not in the paper's text" if protocol == "honest" else ""
    return Block(column.name, column.title, experiment, tuple(lines), told)


def _compared(figure: int, data: str, protocol: Protocol) -> PaperTable:
    title = {"mnist": "MNIST", "synthetic": "Synthetic"}[data]
    return PaperTable(
        "pfedme",
        f"figure-{figure}",
        f"Figure {figure}: the same parameters for all, {title}",
        tuple(_same(column, protocol) for column in COLUMNS if column.data == data),
        "last" if protocol == "honest" else "best",
        measures=(ACCURACY, TRAIN_LOSS, BEHIND),
        drawn="curves",
        protocol=protocol,
    )


BOTH: tuple[Protocol, ...] = ("honest", "paper")
known(
    *(_swept(figure) for figure in SWEPT),
    *(_compared(6, "mnist", protocol) for protocol in BOTH),
    *(_compared(7, "synthetic", protocol) for protocol in BOTH),
)
