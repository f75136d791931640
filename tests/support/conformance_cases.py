"""Every registered method in small: options, graphs and comparisons that all conformance tests
share.

A method that is registered later is picked up by itself, as long as its options have the usual
names.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import METHODS, Graph, Method, Model, Result
from coterie.core.randomness import Role, cohort, role_key
from coterie.engine.exchange import exchange_of
from coterie.models.layers import dense_first

NAMES = sorted(METHODS)

# One method of every kind: each exchange, several messages or one, with and without memory, a hub
# that addresses clients. Checks of machinery that knows nothing of a method's equations run over
# these by default and over all with `pytest -m slow`, because compiling takes the time.
KINDS = ("local", "global", "fedavg", "scaffold", "pfedme", "lp-proj-1", "mocha", "fedu", "dfedu")


# Rivals, whose rounds are repeated in NumPy or equal those of others in tests of their own; what
# conformance asks runs with `pytest -m slow`.
RIVALS = (
    "apple",
    "cfl",
    "dada",
    "fedala",
    "fedamp",
    "fedbabu",
    "fedem",
    "fedfomo",
    "ifca",
    "knn-local",
    "knn-per",
    "pfedgraph",
    "sfl",
)


def daily(labels: Iterable[str]) -> list[Any]:
    """The same labels, those of rivals marked as long checks."""
    return [
        pytest.param(label, marks=pytest.mark.slow) if label in RIVALS else label
        for label in labels
    ]


def thinned(labels: Iterable[str]) -> list[Any]:
    """The same labels, those beyond KINDS marked as long checks."""
    return [
        label if label in KINDS else pytest.param(label, marks=pytest.mark.slow) for label in labels
    ]


# Small enough to compile fast, large enough that nothing is trivial: several steps, several inner
# steps, dsub < d.
USUAL: dict[str, Any] = {
    "lr": 0.1,
    "personal_lr": 0.05,
    "lam": 1.5,
    "eta": 0.2,
    "local_steps": 3,
    "local_rounds": 2,
    "inner_steps": 3,
    "dsub": 4,
}
TRAINING: dict[str, Any] = {"rounds": 4, "eval_every": 2, "batch_size": 4, "precision": "float64"}
SAMPLED: dict[str, Any] = {**TRAINING, "cohort": 3}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in NAMES},
    "local, epochs": ("local", {"local_epochs": 1}),
    "fedavg, epochs, β": ("fedavg", {"local_epochs": 2, "beta": 0.7, "weighting": "uniform"}),
    "fedu, epochs, all neighbours": ("fedu", {"local_epochs": 1, "neighbours": "all"}),
    "fedu, implicit": ("fedu", {"implicit": True, "eta": 5.0}),
    "fedu, empty middle, epochs": ("fedu", {"empty": 2, "local_epochs": 1}),
    "dfedu, Network Lasso": ("dfedu", {"edge_penalty": "norm"}),
    "graph-proj, Network Lasso": ("graph-proj", {"edge_penalty": "norm"}),
    "pfedme, epochs": ("pfedme", {"local_epochs": 2}),
    "pfedme, Nesterov": ("pfedme", {"inner_solver": "nesterov", "tolerance": 0.5}),
    "lp-proj-2, Nesterov": ("lp-proj-2", {"inner_solver": "nesterov", "inner_momentum": 0.4}),
    "fedu, guarded": ("fedu", {"guard": True, "optimizer": "adam", "optimizer_state": "kept"}),
    "graph-proj, guarded": ("graph-proj", {"guard": True, "local_epochs": 1}),
    "pfedme, all options": (
        "pfedme",
        {
            "inner_start": "last",
            "decay": 0.01,
            "keep_local": True,
            "weighting": "samples",
            "trains": "sampled",
            "tolerance": 0.5,
            "beta": 1.5,
        },
    ),
    "lp-proj, p = 1.5, blocks": (
        "lp-proj",
        {"p": 1.5, "projection": "block", "blocks": 2, "tolerance": 0.05, "trains": "sampled"},
    ),
    "graph-proj, peers, p = 1": ("graph-proj", {"hub": False, "p": 1.0, "projection": "layer"}),
    "fedrep, epochs, own head_lr": ("fedrep", {"local_epochs": 1, "head_steps": 2, "head_lr": 0.3}),
    "fedamp, cosines, α": (
        "fedamp",
        {"attention": "cosine", "alpha": 0.5, "self_weight": 0.3, "local_epochs": 1},
    ),
    "pfedgraph, epochs, alike": (
        "pfedgraph",
        {"local_epochs": 1, "weighting": "uniform", "alpha": 0.2, "lam": 0.0},
    ),
    "fedfomo, two models": ("fedfomo", {"download": 2, "epsilon": 0.5, "validation": 0.4}),
    "sfl, two layers, learnt in part": (
        "sfl",
        {"layers": 2, "alpha": 0.7, "rho": 0.5, "nearest": 2, "local_epochs": 1, "lam": 0.5},
    ),
    "dada, implicit, full": (
        "dada",
        {"implicit": True, "eta": 5.0, "full": 8.0, "optimizer": "momentum"},
    ),
    "fedem, two components, FedAdam": (
        "fedem",
        {"components": 2, "local_epochs": 1, "look": 2, "server_optimizer": "fedadam"},
    ),
    "knn-per, votes, few rows": (
        "knn-per",
        {"votes": 0.3, "nearest": 3, "capacity": 5, "local_epochs": 1},
    ),
    "apfl, adaptive": ("apfl", {"adapt": True}),
    "l2gd, coin": ("l2gd", {"coin": True}),
    "mocha, Ω learnt, slow clients": (
        "mocha",
        {"omega": "learn", "omega_every": 2, "slowest": 0.3, "local_epochs": 2},
    ),
    "scaffold, epochs, gradient": (
        "scaffold",
        {"local_epochs": 1, "control": "gradient", "beta": 0.7},
    ),
    "per-fedavg, epochs, Hessian": (
        "per-fedavg",
        {"local_epochs": 1, "order": "hessian-vector", "adapt_steps": 2},
    ),
    "apple, epochs, momentum kept": (
        "apple",
        {
            "local_epochs": 1,
            "weight_lr": 0.05,
            "weighting": "uniform",
            "optimizer": "momentum",
            "optimizer_state": "kept",
        },
    ),
    "cfl, splits, by samples": (
        "cfl",
        {"eps1": 3.0, "eps2": 0.0, "clusters": 3, "weighting": "samples", "local_epochs": 1},
    ),
    "ifca, three clusters, FedAdam": (
        "ifca",
        {"clusters": 3, "local_epochs": 1, "look": 2, "server_optimizer": "fedadam"},
    ),
    "fedala, epochs, all layers": (
        "fedala",
        {"local_epochs": 1, "weight_steps": 2, "upper": 2, "share": 0.5, "weight_lr": 3.0},
    ),
    "fedbabu, epochs, head": ("fedbabu", {"local_epochs": 1, "adapt_steps": 2, "adapts": "head"}),
    "ditto, all train": ("ditto", {"trains": "all", "personal_steps": 2, "local_steps": 1}),
    "ditto, epochs": ("ditto", {"local_epochs": 1, "personal_steps": 2}),
    "rsa, epochs": ("rsa", {"local_epochs": 1, "hub_decay": 0.1}),
    "afl, median": ("afl", {"merging": "median", "weight_lr": 2.0}),
    "fedavg, Adam kept, FedYogi": (
        "fedavg",
        {"optimizer": "adam", "optimizer_state": "kept", "server_optimizer": "fedyogi"},
    ),
    "fedu, momentum kept, all neighbours": (
        "fedu",
        {"optimizer": "momentum", "optimizer_state": "kept", "neighbours": "all"},
    ),
    "local, clipped": ("local", {"optimizer": {"name": "sgd", "clip": 0.3, "weight_decay": 0.1}}),
    "global, Adam kept": ("global", {"optimizer": "adam", "optimizer_state": "kept"}),
    "scaffold, RMSProp kept, FedAdam": (
        "scaffold",
        {"optimizer": "rmsprop", "optimizer_state": "kept", "server_optimizer": "fedadam"},
    ),
    "afl, Adam at the hub": ("afl", {"server_optimizer": "adam", "optimizer": "lion"}),
    "apfl, Adam kept": ("apfl", {"optimizer": "adam", "optimizer_state": "kept", "adapt": True}),
    "ditto, Adagrad kept": ("ditto", {"optimizer": "adagrad", "optimizer_state": "kept"}),
    "fedrep, Yogi kept, FedAvgM": (
        "fedrep",
        {"optimizer": "yogi", "optimizer_state": "kept", "server_optimizer": "fedavgm"},
    ),
    "fedper, AdamW kept": ("fedper", {"optimizer": "adamw", "optimizer_state": "kept"}),
    "lp-proj-2, FedAdagrad": ("lp-proj-2", {"server_optimizer": "fedadagrad"}),
    "graph-proj, p = 3, all neighbours": (
        "graph-proj",
        {"p": 3.0, "neighbours": "all", "projection": "orthogonal"},
    ),
    "lp-proj-1, srht": ("lp-proj-1", {"projection": "srht"}),
    "graph-proj, srht": ("graph-proj", {"projection": "srht"}),
}


def small(name: str, **more: Any) -> Method:
    """A registered method with small loops."""
    usual = {k: v for k, v in USUAL.items() if k in METHODS[name].public()}
    if "local_epochs" in more:  # they take the place of steps
        usual.pop("local_steps", None)
        usual.pop("local_rounds", None)
    return coterie.get_method(name, {**usual, **more})


def variant(label: str) -> Method:
    name, options = VARIANTS[label]
    return small(name, **options)


def samples_cohorts(method: Method) -> bool:
    """Whether S < N is allowed: not without a hub."""
    return exchange_of(method).kind != "graph" or method.hub_between


def uneven_graph(clients: int = 5) -> Graph:
    """A connected graph with unequal weights and degrees; client 4 has one neighbour only."""
    a = np.zeros((clients, clients))
    for k, l, weight in ((0, 1, 0.5), (1, 2, 2.0), (2, 3, 1.0), (3, 4, 0.25), (0, 3, 1.5)):
        if max(k, l) < clients:
            a[k, l] = a[l, k] = weight
    return coterie.graph.from_matrix(a)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _cohorts(seed: Any, rounds: int, clients: int, size: int) -> Any:
    return jax.vmap(lambda t: cohort(role_key(seed, Role.COHORT), t, clients, size))(
        jnp.arange(rounds)
    )


def cohorts(seed: int, rounds: int, clients: int, size: int) -> NDArray[Any]:
    """The clients sampled in rounds 0, 1, …, straight from the seed: (rounds, size)."""
    return np.asarray(_cohorts(seed, rounds, clients, size))


def _zeros(key: Any) -> dict[str, Any]:
    return {"w": jnp.zeros((3, 4)), "b": jnp.zeros(3)}


# Started at zero, where P x = w̃ holds exactly: ψ_p is not smooth at 0 for p < 2, so a rounding
# error in P x − w̃ would count.
ZERO_START = Model(_zeros, dense_first, class_major=True)


def model_for(method: Method) -> Model | str:
    kink = getattr(method, "p", 2) < 2 or getattr(method, "edge_penalty", "") == "norm"
    return ZERO_START if kink else "mlr"


def flat_models(result: Result, view: str | None = None) -> NDArray[Any]:
    """The models of all clients as (N, d)."""
    stacked = result.simulator.all_models(view)
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in stacked.leaves], axis=1)


def everything(result: Result) -> dict[str, Any]:
    """All that a run leaves: every view of every client, the hub, every score of every
    evaluation.
    """
    out: dict[str, Any] = {
        f"models, {view}": flat_models(result, view) for view in result.method.model_views
    }
    out |= {
        f"hub, leaf {i}": np.asarray(leaf)
        for i, leaf in enumerate(jax.tree.leaves(result.simulator.hub))
    }
    for snapshot in result.snapshots:
        for split, scores in snapshot.scores.items():
            out[f"loss on {split} after {snapshot.round}"] = scores.loss
            out[f"score on {split} after {snapshot.round}"] = scores.score
    return out


def assert_alike(a: Result, b: Result, *, rtol: float, atol: float = 0.0) -> None:
    one, two = everything(a), everything(b)
    assert one.keys() == two.keys()
    for key in one:
        np.testing.assert_allclose(one[key], two[key], rtol=rtol, atol=atol, err_msg=key)
    np.testing.assert_array_equal(a.ledger.rows(), b.ledger.rows())


def assert_same_bits(a: Result, b: Result) -> None:
    one, two = everything(a), everything(b)
    assert one.keys() == two.keys()
    for key in one:
        assert one[key].dtype == two[key].dtype
        assert one[key].tobytes() == two[key].tobytes(), key
    np.testing.assert_array_equal(a.ledger.rows(), b.ledger.rows())
