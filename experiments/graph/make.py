"""Writes the experiments of this folder: the same methods on every federation.

python experiments/graph/make.py

Every method is then tuned and run:

coterie tune experiments/graph/mnist/experiment.toml -o runs/graph-mnist-tune
coterie compare runs/graph-mnist-tune/tuned.toml -o runs/graph-mnist
python experiments/graph/measure.py runs/graph-mnist experiments/graph/mnist
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

HERE = Path(__file__).parent
KIN = {"kind": "learn", "rule": {"name": "kin", "sketch": 64}}
LOOKS = {"kind": "learn", "rule": {"name": "kin", "sketch": 256, "bits": 1, "every": 12}}
STEPS = {"local_steps": 20, "lr": 0.03}
FEDERATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "mnist": (
        "MNIST, FedU's 100 clients with 2 labels, half down-sampled",
        {"name": "mnist", "downsample": 0.2},
        "similar",
    ),
    "har": ("HAR, 30 people, half down-sampled", {"name": "har", "downsample": 0.2}, "similar"),
    "mnist-rotated": (
        "MNIST in 4 hidden clusters, turned by quarters; 60 clients of 300 samples",
        {
            "name": "mnist",
            "clients": 60,
            "split": "iid",
            "mean_size": 300,
            "test": 0.5,
            "downsample": 0.2,
            "hidden": 4,
            "hidden_by": "rotate",
        },
        "hidden",
    ),
    "mnist-permuted": (
        "MNIST in 5 hidden clusters with other names for labels; 60 clients of 300 samples",
        {
            "name": "mnist",
            "clients": 60,
            "split": "iid",
            "mean_size": 300,
            "test": 0.5,
            "downsample": 0.2,
            "hidden": 5,
        },
        "hidden",
    ),
    "har-permuted": (
        "HAR in 3 hidden clusters with other names for activities, half down-sampled",
        {"name": "har", "downsample": 0.2, "hidden": 3},
        "hidden",
    ),
    "synthetic": (
        "Synthetic in 2 hidden clusters with a rule each; 60 clients of 160 samples",
        {
            "name": "synthetic",
            "clients": 60,
            "hidden": 2,
            "sizes": "equal",
            "mean_size": 160,
            "test": 0.5,
            "alpha": 1.0,
            "beta": 0.0,
            "downsample": 0.2,
        },
        "hidden",
    ),
    "cifar10": (
        "CIFAR-10 (part), FedU's 20 clients with 3 labels, half down-sampled",
        {"name": "cifar10", "partial": True, "shape": "flat", "downsample": 0.2},
        "similar",
    ),
}


def methods(name: str, oracle: str) -> list[dict[str, Any]]:
    """Everybody takes 20 gradient steps a round; guarded clients 10 with each of two models. APPLE
    reads everybody's model at every step: on pictures that would take hours. Eight looks and
    kNN-Local came later: elsewhere they stand in tables of their own (`again`, `later`).
    """
    small = not name.startswith(("mnist", "cifar10"))
    whole = name in ("har", "cifar10")
    fedu = {"name": "fedu", **STEPS, "eta": 0.01, "implicit": True}
    inner = {"local_rounds": 4, "inner_steps": 5, "lr": 0.3, "personal_lr": 0.05}
    few = {"graph": {**KIN, "rule": {**KIN["rule"], "bits": 1}}}  # type: ignore[dict-item]
    return [
        {"name": "local", **STEPS},
        {"name": "fedavg", **STEPS},
        {**fedu, "graph": {"kind": "complete"}},
        {**fedu, "graph": {"kind": "random-graph", "probability": 0.1}},
        {**fedu, "graph": {"kind": oracle}},
        {**fedu, "graph": KIN},
        {**fedu, **few},
        *([{**fedu, "graph": LOOKS}] if whole else []),
        {**fedu, "graph": {"kind": "learn", "rule": {"name": "dada", "sketch": 64}}},
        {**fedu, "graph": KIN, "local_steps": 10, "guard": True},
        {"name": "pfedme", **inner, "lam": 5.0, "inner_start": "last"},
        {"name": "ditto", **STEPS, "local_steps": 10, "personal_lr": 0.03},
        {"name": "fedamp", **STEPS},
        {"name": "pfedgraph", **STEPS},
        {"name": "fedfomo", **STEPS},
        {"name": "ifca", **STEPS, "clusters": 4},
        {"name": "fedala", **STEPS},
        *([] if name == "mnist" else rivals(small)),
        *([{"name": "knn-local", **STEPS}] if whole else []),
    ]


def rivals(small: bool) -> list[dict[str, Any]]:
    """Those that came later."""
    return [
        {"name": "cfl", **STEPS},
        *([{"name": "apple", **STEPS}] if small else []),
        {"name": "sfl", **STEPS, "rho": 0.5},
        {"name": "dada", **STEPS, "graph": {"kind": "learn", "rule": {"name": "dada"}}},
        {"name": "fedem", **STEPS, "components": 4},
        {"name": "knn-per", **STEPS},
    ]


def later() -> list[dict[str, Any]]:
    """MNIST: what its table lacks, beside Local; kNN-Per has a table of its own (`knn-mnist`)."""
    local, _, looks = again()
    return [local, looks, *(r for r in rivals(small=False) if r["name"] != "knn-per")]


def memories() -> list[dict[str, Any]]:
    """kNN-Per beside Local with and without a memory."""
    return [{"name": name, **STEPS} for name in ("local", "knn-per", "knn-local")]


def rarely(oracle: str) -> list[dict[str, Any]]:
    """FedU whole with the oracle's graph, and who reaches what with few bytes: talking rarely,
    sending little, over a learnt graph.
    """
    fedu = {"name": "fedu", **STEPS, "eta": 0.01, "implicit": True}
    known, kin = {"graph": {"kind": oracle}}, {"graph": KIN}
    bits = {"graph": {**KIN, "rule": {**KIN["rule"], "bits": 1}}}  # type: ignore[dict-item]
    four = {"channel": {"name": "plain", "values": "int4", "down": True}}
    largest = {"channel": {"name": "delta", "share": 0.1, "values": "int4"}}
    cyclic = {"name": "delta", "share": 0.0145, "values": "int4", "pick": "cyclic"}
    inner = {"local_rounds": 4, "inner_steps": 5, "lr": 0.3, "personal_lr": 0.05}
    few = {"exchange_every": 25}
    return [
        {"name": "local", **STEPS},
        {**fedu, **known},
        {**fedu, **known, **few},
        {**fedu, **known, **few, **four},
        {**fedu, **known, "exchange_every": 50, **four},
        {**fedu, **known, **few, **largest},
        {**fedu, **known, "channel": cyclic},
        {**fedu, **kin},
        {**fedu, **kin, "channel": cyclic},
        {**fedu, **kin, "exchange_every": 50, **four},
        {**fedu, **kin, **few, **largest},
        {**fedu, **kin, "exchange_every": 34, **largest},
        {**fedu, **bits, **few, **largest},
        {"name": "ditto", **STEPS, "local_steps": 10, "personal_lr": 0.03, **few, **largest},
        {"name": "pfedme", **inner, "lam": 5.0, "inner_start": "last", **few, **largest},
    ]


def again() -> list[dict[str, Any]]:
    """A look at 64 numbers after 5 rounds, or 8 looks at 256 signs, one every 12 rounds: 256 bytes
    a client either way.
    """
    fedu = {"name": "fedu", **STEPS, "eta": 0.01, "implicit": True}
    return [
        {"name": "local", **STEPS},
        {**fedu, "graph": KIN},
        {**fedu, "graph": LOOKS},
    ]


BYTES = ("mnist", "har")
AGAIN = ("mnist-permuted", "har-permuted", "mnist-rotated", "synthetic")


def experiment(title: str, data: dict[str, Any], listed: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": title,
        "seeds": [0, 1, 2, 3, 4],
        "data": data,
        "model": {"name": "mlr"},
        "training": {"rounds": 100, "eval_every": 50, "batch_size": 20},
        "tune": {"steps": 16000},
        "methods": listed,
    }


if __name__ == "__main__":
    made = {
        name: experiment(title, data, methods(name, oracle))
        for name, (title, data, oracle) in FEDERATIONS.items()
    }
    for name in BYTES:
        title, data, oracle = FEDERATIONS[name]
        made[f"bytes-{name}"] = experiment(f"{title}: few bytes", data, rarely(oracle))
    title, data, _ = FEDERATIONS["mnist"]
    made["later-mnist"] = experiment(f"{title}: later rivals", data, later())
    made["knn-mnist"] = experiment(f"{title}: kNN-Per", data, memories())
    for name in AGAIN:
        title, data, _ = FEDERATIONS[name]
        made[f"again-{name}"] = experiment(f"{title}: looking again", data, again())
    for name, config in made.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        path, runs = f"experiments/graph/{name}", f"runs/graph-{name}"
        comment = (
            "# Written by experiments/graph/make.py.\n#\n"
            f"# coterie tune {path}/experiment.toml -o {runs}-tune\n"
            f"# coterie compare {runs}-tune/tuned.toml -o {runs}\n"
            f"# python experiments/graph/measure.py {runs} {path}\n"
        )
        text = tomli_w.dumps(config)
        (folder / "experiment.toml").write_text(comment + text)
