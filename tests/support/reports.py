"""Comparisons that are made by hand: no training, any number of clients."""

from __future__ import annotations

from typing import Any

import numpy as np

import coterie
from coterie import Federation
from coterie.data.federation import Split
from coterie.report.comparison import Comparison, Entry
from coterie.report.outcome import Outcome

HOSTILE = "</script><img src=x onerror=\"window.hit='yes'\">\u2028{{7*7}} 'a' & \"b\""
"""A name that breaks out of whatever does not escape it."""


def federation(clients: int, names: list[str] | None = None) -> Federation:
    """Every client has ten rows of three labels in every split, in shares of its own."""
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.choice(3, 10, p=rng.dirichlet([0.5] * 3)) for _ in range(clients)])
    part = Split(np.zeros((10 * clients, 1)), y, 10 * np.arange(clients + 1))
    facts: dict[str, Any] = {"labels": [HOSTILE, "1", "two"]}
    if names is not None:
        facts["clients"] = names
    return Federation("made", part, part, part, classes=3, facts=facts)


def outcome(
    method: coterie.Method, seed: int, clients: int, evaluations: int, top: float
) -> Outcome:
    """Scores that rise to about `top`, with some noise."""
    rng = np.random.default_rng(seed + int(1000 * top))
    t = np.arange(evaluations)
    rise = top * (1 - 0.7 ** (t + 1))[:, None] - 0.1 * rng.random(clients)
    views: dict[str, Any] = dict.fromkeys(method.model_views, np.clip(rise, 0, 1))
    losses = {v: 1 - s for v, s in views.items()}
    sent = {"local": 0, "fedavg": 40_000}.get(method.name, 4000) * t * clients
    bill = (5 * t, sent, sent, 20 * t * clients)
    sizes = np.full(clients, 10)
    return Outcome(method, seed, *bill, views, losses, sizes, 1.0, 0.5, validation=top)


def comparison(
    clients: int = 6, evaluations: int = 8, seeds: int = 2, names: list[str] | None = None
) -> Comparison:
    """Local and three methods."""
    methods = {
        "Local": coterie.Local(),
        "FedAvg": coterie.FedAvg(),
        "FedU": coterie.FedU(),
        HOSTILE: coterie.PFedMe(),
    }
    made = {
        label: [outcome(m, s, clients, evaluations, 0.7 + 0.05 * i) for s in range(seeds)]
        for i, (label, m) in enumerate(methods.items())
    }
    entries = [Entry(label, found, made["Local"]) for label, found in made.items()]
    entries[2].graph = "ring"
    return Comparison(f"made of {HOSTILE}", federation(clients, names), entries)
