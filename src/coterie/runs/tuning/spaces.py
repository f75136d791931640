"""What is searched for a method: what its options declare, or what an experiment says instead."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.core import search
from coterie.core.declared import check_search
from coterie.core.errors import InvalidInput, unknown
from coterie.core.schedule import Cosine, Schedule
from coterie.core.search import Among, LogRange, Space
from coterie.methods.base import METHODS, Method

Spaces = dict[str, Space]
Params = dict[str, Any]
_LEARNING, _PERSONAL, _LAMBDA = [0.05, 0.1, 0.5], [0.01, 0.05, 0.1], [0.1, 1.0, 10.0]
_R = [1, 5]
_PULLED: dict[str, list[Any]] = {
    "lr": _LEARNING,
    "personal_lr": _PERSONAL,
    "lam": _LAMBDA,
    "local_rounds": _R,
}

PRESETS: dict[str, dict[str, dict[str, list[Any]]]] = {
    "lp-proj-c2": {
        "local": {"lr": _LEARNING},
        "fedavg": {"lr": _LEARNING, "local_steps": _R},
        "lg-fedavg": {"lr": _LEARNING, "local_steps": _R},
        "per-fedavg": {"lr": _LEARNING, "adapt_lr": _PERSONAL},
        "ditto": {
            "lr": _LEARNING,
            "personal_lr": _PERSONAL,
            "lam": _LAMBDA,
            "local_steps": _R,
        },
        "rsa": {"lr": _LEARNING, "hub_lr": _PERSONAL, "lam": _LAMBDA, "local_steps": _R},
        "pfedme": _PULLED,
        "lp-proj": _PULLED,
        "lp-proj-1": _PULLED,
        "lp-proj-2": _PULLED,
    }
}
"""Grids of papers. lp-proj-c2: App. C.2 of the lp-proj paper. Its "local learning rate" is `lr`,
its "personalization model learning rate" `personal_lr` (of RSA, where clients' models have `lr`,
that of the hub; of Per-FedAvg that of the adaptation).
"""


def read_search(given: Any) -> dict[str, Spaces]:
    """The table `tune.search` of an experiment: a table per method, with a space per option."""
    if not isinstance(given, dict):
        raise InvalidInput(f"tune.search is {given!r}, but must be a table with one per method.")
    out: dict[str, Spaces] = {}
    for name, options in given.items():
        if name not in METHODS:
            raise unknown("the method in tune.search,", name, METHODS)
        if not isinstance(options, dict):
            raise InvalidInput(f"tune.search.{name} is {options!r}, but must be a table.")
        public = METHODS[name].public()
        out[name] = {}
        for key, value in options.items():
            if key not in public:
                raise unknown(f"the option of {name} in tune.search,", key, public)
            space = search.from_config(f"tune.search.{name}.{key}", value, public[key].search)
            check_search(f"tune.search.{name}", public[key], space)
            out[name][key] = space
    return out


def write_search(spaces: Mapping[str, Spaces]) -> dict[str, Any]:
    """The inverse of `read_search`."""

    def plain(space: Space) -> Any:
        if isinstance(space, Among):
            return list(space.values)
        scale = "log" if isinstance(space, LogRange) else "linear"
        return {"low": space.low, "high": space.high, "scale": scale}

    return {m: {k: plain(s) for k, s in each.items()} for m, each in spaces.items()}


def spaces_of(method: Method, given: Mapping[str, Spaces], *, whole: bool) -> Spaces:
    """What is searched: what is `given` for the method, else what its options declare.

    Without `whole`, declared spaces of whole numbers are left out: each value compiles a program of
    its own. Options that are without effect, or hold a schedule, are left alone, and so is `l2`
    where it is 0. Every space is widened to hold the value that the method has, which is always
    tried first.
    """
    public, unused = method.public(), method.unused()
    asked = given.get(method.name)
    if asked is None:
        asked = {
            name: d.search
            for name, d in public.items()
            if d.search is not None and (whole or d.traced) and (name != "l2" or method.l2)
        }
    out = {}
    for name, space in asked.items():
        value = getattr(method, name)
        if name in unused or isinstance(value, Schedule):
            continue
        out[name] = space if value is None or given.get(method.name) else widened(space, value)
    return out


def widened(space: Space, value: Any) -> Space:
    if isinstance(space, Among):
        return space if value in space.values else Among((value, *space.values), space.decays)
    if isinstance(space, LogRange) and value <= 0:
        return space
    return type(space)(min(space.low, value), max(space.high, value), space.decays)


def inside(space: Space, value: Any) -> bool:
    if isinstance(space, Among):
        return value in space.values
    return isinstance(value, (int, float)) and space.low <= value <= space.high


def with_params(method: Method, params: Params, spaces: Spaces, decay_over: int | None) -> Method:
    """The method with other values; step sizes go to 0 over so many rounds, where that is given."""
    changes = {
        name: (
            Cosine(value=float(value), rounds=float(decay_over))
            if decay_over is not None and spaces[name].decays and method.public()[name].schedulable
            else value
        )
        for name, value in params.items()
    }
    return method.replace(**changes)


GRID_POINTS = 4
"""Values that the sampler "grid" takes of a range."""


def grid_points(spaces: Spaces, seed: int | None) -> list[Params]:
    """All points of a grid; with a seed, where a budget may cut them, in random order."""
    values = [space.points(GRID_POINTS) for space in spaces.values()]
    points = [dict(zip(spaces, each, strict=True)) for each in itertools.product(*values)]
    if seed is None:
        return points
    return [points[i] for i in np.random.default_rng(seed).permutation(len(points))]


def point(spaces: Spaces, place: np.ndarray, method: Method) -> Params:
    """The values at a place in the unit cube."""
    out: Params = {}
    for (name, space), u in zip(spaces.items(), place, strict=True):
        if isinstance(space, Among):
            out[name] = space.values[min(int(u * len(space.values)), len(space.values) - 1)]
            continue
        value = float(
            space.low * (space.high / space.low) ** u
            if isinstance(space, LogRange)
            else space.low + u * (space.high - space.low)
        )
        value = min(max(value, space.low), space.high)
        out[name] = value if method.public()[name].traced else round(value)
    return out
