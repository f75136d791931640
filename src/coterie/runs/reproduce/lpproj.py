"""lp-proj: *A Random Projection Approach to Personalized Federated Learning*: Table 4, test
accuracy.

Batches of 64 and 10% of the clients in a round. The paper names grids and no values, so everybody
is tuned with the same budget. lp-proj takes R·K = 20 gradient steps a round at every client, so the
others get 20 steps too, and Local stands beside them with the same number; in the published code
Local had fewer. EMNIST and Fashion-MNIST are not there yet.
"""

from __future__ import annotations

from coterie.runs.reproduce.base import Block, Config, Line, PaperTable, known

STEPS: Config = {"local_steps": 20}
INNER: Config = {"local_rounds": 1, "inner_steps": 20}
Numbers = dict[str, str]

TABLE_4: dict[str, Numbers] = {
    "synthetic-00": {
        "Ditto": "85.69 ± 0.12",
        "pFedMe": "85.80 ± 0.15",
        "Per-FedAvg": "79.77 ± 0.10",
        "FedAvg": "77.14 ± 0.10",
        "Local": "86.65 ± 0.16",
        "lp-proj-1": "88.68 ± 0.10",
        "lp-proj-2": "88.67 ± 0.13",
        "RSA": "83.14 ± 0.19",
    },
    "mnist": {
        "Ditto": "98.63 ± 0.04",
        "pFedMe": "98.24 ± 0.05",
        "Per-FedAvg": "98.31 ± 0.05",
        "FedAvg": "94.16 ± 0.09",
        "Local": "98.22 ± 0.01",
        "lp-proj-1": "98.22 ± 0.02",
        "lp-proj-2": "98.25 ± 0.02",
        "RSA": "98.09 ± 0.02",
        "LG-FedAvg": "98.21 ± 0.03",
    },
    "cifar10": {
        "Ditto": "79.09 ± 0.84",
        "pFedMe": "79.13 ± 0.34",
        "Per-FedAvg": "72.57 ± 2.20",
        "FedAvg": "45.94 ± 0.91",
        "Local": "76.88 ± 0.26",
        "lp-proj-1": "79.22 ± 0.17",
        "lp-proj-2": "79.10 ± 0.15",
        "RSA": "77.68 ± 0.48",
        "LG-FedAvg": "75.23 ± 0.55",
    },
}


def _lines(numbers: Numbers, dsub: int) -> tuple[Line, ...]:
    methods: dict[str, Config] = {
        "Ditto": {"name": "ditto", "local_steps": 10},
        "pFedMe": {"name": "pfedme", "local_rounds": 4, "inner_steps": 5},
        "Per-FedAvg": {"name": "per-fedavg", "local_steps": 10},
        "FedAvg": {"name": "fedavg", **STEPS},
        "Local": {"name": "local", **STEPS, "trains": "all"},
        "lp-proj-1": {"name": "lp-proj-1", **INNER, "dsub": dsub},
        "lp-proj-2": {"name": "lp-proj-2", **INNER, "dsub": dsub},
        "RSA": {"name": "rsa", **STEPS},
        "LG-FedAvg": {"name": "lg-fedavg", **STEPS},
    }
    return tuple(Line(k, methods[k], paper, None, True) for k, paper in numbers.items())


def _block(name: str, title: str, parts: Config, dsub: int, differs: str = "") -> Block:
    training = {"rounds": 200, "eval_every": 20, "batch_size": 64, "fraction": 0.1}
    experiment = {**parts, "training": training, "resplit": True}
    return Block(name, title, experiment, _lines(TABLE_4[name], dsub), differs)


known(
    PaperTable(
        "lp-proj",
        "table-4",
        "Table 4: personalisation and fairness, test accuracy",
        (
            _block(
                "synthetic-00",
                "Synthetic(0, 0), logistic regression",
                {
                    "data": {
                        "name": "synthetic",
                        "sizes": "equal",
                        "mean_size": 202,
                        "validation": 0.0,
                    },
                    "model": {"name": "mlr"},
                },
                21,
                "the paper does not say how many rounds; 200 here",
            ),
            _block(
                "mnist",
                "MNIST, 100 clients with 2 labels, 784-100-10",
                {
                    "data": {
                        "name": "mnist",
                        "split": "labels",
                        "mean_size": 434,
                        "validation": 0.0,
                    },
                    "model": {"name": "mlp", "hidden": [100]},
                },
                50,
                "the paper does not say how many rounds; 200 here",
            ),
            _block(
                "cifar10",
                "CIFAR-10 (part), 200 clients with 2 labels, LeNet",
                {
                    "data": {
                        "name": "cifar10",
                        "partial": True,
                        "clients": 200,
                        "split": "labels",
                        "labels": 2,
                        "shape": "image",
                        "validation": 0.0,
                    },
                    "model": {"name": "lenet"},
                },
                60,
                "30,000 of the 60,000 pictures: numbers cannot be compared",
            ),
        ),
    )
)
