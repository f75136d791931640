"""Experiments that need no file: `coterie demo`, and the default comparison on somebody's own
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import InvalidInput, listed, notice, unknown
from coterie.data.federation import Federation
from coterie.engine.training import Training
from coterie.methods.base import METHODS, get_method
from coterie.methods.local import Local
from coterie.models.base import Model, ModelSpec
from coterie.models.build import build_model
from coterie.runs.experiment import Experiment
from coterie.runs.tuning.spaces import widened, write_search

INNER = {"local_rounds": 4, "inner_steps": 5}
"""pFedMe and lp-proj then take 20 gradient steps a round, as many as the others."""


COMPARED = ("local", "fedavg", "per-fedavg", "ditto", "pfedme", "fedu")
"""What is compared on somebody's own data: training alone, one model for all, one start for all,
personal models near a shared one, and neighbours (over two graphs: `over_graphs`).
"""
ALONE = 5
"""Rounds alone before a graph is learnt."""
FEWEST_FOR_KIN = 6
"""Clients that there must be to learn who is like whom. Among fewer, the complete graph has hardly
more edges than a learnt one.
"""


def demo_experiment(rounds: int = 60, seeds: Iterable[int] = (0,)) -> Experiment:
    """20 clients with 2–3 digits each and few samples; every method takes 20 gradient steps per
    client and round. Who is like whom nobody knows: the graph is learnt.
    """
    kin = {"name": "kin", "neighbours": 5, "after": max(1, min(ALONE, rounds // 4))}
    return Experiment.from_config(
        {
            "name": "digits, 20 clients with 2–3 labels",
            "data": {"name": "digits", "clients": 20, "validation": 0.1, "test": 0.5},
            "model": "mlr",
            "graph": {"kind": "learn", "rule": kin},
            "training": {"rounds": rounds, "eval_every": 5, "batch_size": 20},
            "seeds": list(seeds),
            "methods": [
                {"name": "local"},
                {"name": "fedavg"},
                {"name": "pfedme", **INNER, "lam": 5.0, "lr": 0.3, "personal_lr": 0.05},
                {"name": "fedu", "eta": 0.03},
                {"name": "lp-proj-1", **INNER, "lam": 1.0, "dsub": 50},
                {"name": "graph-proj", "eta": 0.03, "dsub": 50},
            ],
        }
    )


def own_data(path: Path, client: str | None, target: str | None) -> dict[str, Any]:
    """The config of a comparison on a table with a client column, or on a folder with a table per
    client.

    Nothing is read yet, so that settings can still change it; `with_methods` completes it.
    """
    if target is None:
        raise InvalidInput(
            f"{str(path)!r} is your own data: say which column to predict with --target."
        )
    if path.is_dir():
        if client is not None:
            raise InvalidInput(
                f"{str(path)!r} is a folder with a client per table, so --client {client} has no"
                " meaning; leave it out."
            )
        data = {"name": "folder", "path": str(path), "target": target}
    else:
        if client is None:
            raise InvalidInput(
                f"{str(path)!r} is your own table: say which column names the client with --client."
            )
        data = {"name": "table", "path": str(path), "client": client, "target": target}
    return {
        "name": path.stem,
        "data": data,
        "model": "mlr",
        "training": {"rounds": 60, "eval_every": 10},
    }


def with_methods(config: dict[str, Any], methods: Sequence[str] | None = None) -> dict[str, Any]:
    """The config with the default methods, or those named, in settings that suit its data and its
    model.

    `[method]` with a name is the only method; without one its options are those of all methods that
    have them. `[methods.NAME]` holds options of one of them; a list of methods is taken as it is.
    """
    config = dict(config)
    common, given = config.pop("method", {}), config.pop("methods", {})
    if not isinstance(common, (str, dict)):
        raise InvalidInput(f"method is {common!r}, but must be a name or a table of options.")
    common = {"name": common} if isinstance(common, str) else dict(common)
    single = common.pop("name", None)
    if methods and (single is not None or isinstance(given, list)):
        key = "method.name" if single is not None else "methods"
        raise InvalidInput(f"both --method and {key} name methods; give one of them.")
    if not isinstance(given, (dict, list)):
        raise InvalidInput(
            f"methods is {given!r}, but must be a list of methods, or tables of their options."
        )
    config["training"] = {**config.get("training", {})}
    _suit(config)
    experiment = Experiment.from_config(config)
    defaults = own_options(experiment.federation(), experiment.model)
    if isinstance(given, list):
        tables = [dict(m) if isinstance(m, dict) else {"name": m} for m in given]
    else:
        names = [single] if single is not None else list(methods or COMPARED)
        fedu = given.get("fedu", {})
        free = "graph" not in config and not (isinstance(fedu, dict) and "graph" in fedu)
        federation, training = experiment.federation(), experiment.training
        tables = own_tables(names, federation, experiment.model, training, free)
        _set_some(tables, given)
    _set_all(tables, common)
    distinct = [m for i, m in enumerate(tables) if m not in tables[:i]]
    chosen = given if isinstance(given, dict) else {m["name"]: m for m in tables}
    held = {m["name"]: {*common, *chosen.get(m["name"], {})} for m in distinct}
    for name, options in held.items():
        if "l2" not in defaults[name]:  # the model has a penalty: it is not searched either
            options.add("l2")
    return _held_fast(config, held, distinct) | {"methods": distinct}


def _held_fast(
    config: dict[str, Any], held: dict[str, set[str]], tables: list[dict[str, Any]]
) -> dict[str, Any]:
    """The config in which options that somebody has set are not searched when methods are tuned."""
    search = {}
    for name, options in held.items():
        declared = METHODS[name].public()
        spaces = {k: d.search for k, d in declared.items() if d.search is not None and d.traced}
        if set(spaces) & options:
            search[name] = {k: v for k, v in spaces.items() if k not in options}
            for m in tables:
                if m["name"] == name:
                    mine = search[name]
                    search[name] = {k: widened(v, m[k]) if k in m else v for k, v in mine.items()}
    if not search:
        return config
    tune = dict(config.get("tune", {}))
    return config | {"tune": tune | {"search": write_search(search) | tune.get("search", {})}}


def _suit(config: dict[str, Any]) -> None:
    """Mini-batches that suit the rows of a usual client, unless they are given: 20, and more where
    a client has thousands of rows.
    """
    training = config["training"]
    if "batch_size" in training or training.get("sampling") == "full":
        return
    training["batch_size"] = own_batch(Experiment.from_config(config).federation())


def own_batch(federation: Federation) -> int:
    """Samples per mini-batch that suit a usual client."""
    rows = float(np.median(federation.train.sizes))
    return int(min(256, max(20, 4 * round(rows / 200))))


def own_options(federation: Federation, model: Model | ModelSpec | str) -> dict[str, Any]:
    """Options of methods on somebody's own data, where they are not as usual: the values that
    tuning begins with. All methods take 20 gradient steps a round.

    The coupling of FedU follows the number of clients, so that mixing is stable: η ‖L‖ μR = ½ on
    the complete graph, at most η = 0.03. Every method has the penalty l2 = 1/n, where n are the
    rows of a usual client: that of scikit-learn's logistic regression. A model with an l2 of its
    own keeps that instead.
    """
    built = build_model(model, federation.shape)
    eta = min(0.03, 0.5 / federation.clients)
    dsub = max(1, min(50, built.parameters() // 2))
    rows = max(1.0, float(np.median(federation.train.sizes)))
    penalty = {} if built.l2 else {"l2": float(f"{1 / rows:.2g}")}
    inner = {**INNER, "lr": 0.3, "personal_lr": 0.05}
    projected = {**inner, "lam": 1.0, "projection": "orthogonal", "dsub": dsub}
    suited: dict[str, dict[str, Any]] = {
        "pfedme": {**inner, "lam": 5.0},
        "fedu": {"eta": eta},
        "lp-proj-1": projected,
        "lp-proj-2": projected,
        "graph-proj": {"eta": eta, "dsub": dsub},
    }
    return {name: {**suited.get(name, {}), **penalty} for name in METHODS}


def own_tables(
    names: Sequence[str],
    federation: Federation,
    model: Model | ModelSpec | str,
    training: Training,
    free: bool,
) -> list[dict[str, Any]]:
    """The methods on somebody's own data; with the Local that has all that a method's clients have
    besides each other (`Method.alone`); and where the graph is `free`, over two of them.
    """
    known = [get_method(n) for n in names if n in METHODS]
    more = [m.alone(Local()).name for m in known if not isinstance(m, Local)]
    wanted = dict.fromkeys([*names, *(n for n in more if n != "local")])
    options = own_options(federation, model)
    tables = [{"name": name, **options.get(name, {})} for name in wanted]
    return over_graphs(tables, federation, training) if free else tables


def over_graphs(
    tables: list[dict[str, Any]], federation: Federation, training: Training
) -> list[dict[str, Any]]:
    """The methods, with FedU twice: over the complete graph, and over one that is learnt, where
    there are clients and rounds enough for that.

    Each client chooses a quarter of the others, at most 9. Nobody has more than 3 times as many
    neighbours, so ‖L‖ ≤ 6k, and mixing is stable at first: η ‖L‖ μR ≤ 1.
    """
    n = federation.clients
    if n < FEWEST_FOR_KIN or training.rounds <= ALONE:
        return tables
    k = min(9, n // 4)
    rule: dict[str, Any] = {"name": "kin", "neighbours": k, "after": ALONE}
    if training.cohort_size(federation) < n:  # who trains first later is found later
        rule["every"] = ALONE
    learnt = {"eta": min(0.03, 0.5 / (3 * k)), "graph": {"kind": "learn", "rule": rule}}
    out = []
    for m in tables:
        out += [m] if m["name"] != "fedu" else [m | {"graph": {"kind": "complete"}}, m | learnt]
    return out


def _set_some(tables: list[dict[str, Any]], given: dict[str, Any]) -> None:
    """Options of the methods that are named."""
    for name, options in given.items():
        if not isinstance(options, dict):
            raise InvalidInput(f"methods.{name} is {options!r}, but must be a table of options.")
        mine = [m for m in tables if m["name"] == name]
        if not mine:
            names = listed(dict.fromkeys(m["name"] for m in tables), most=9)
            raise InvalidInput(
                f"methods.{name} is given, but that is none of the methods compared: {names}."
            )
        for m in mine:
            m |= options


def _set_all(tables: list[dict[str, Any]], common: dict[str, Any]) -> None:
    """Options of all methods that have them; who lacks one is said."""
    for m in tables:
        if not isinstance(m.get("name"), str) or m["name"] not in METHODS:
            raise unknown("the method", m.get("name"), METHODS)
    options = {m["name"]: METHODS[m["name"]].public() for m in tables}
    for key, value in common.items():
        having = [name for name in options if key in options[name]]
        if not having:
            known = {k for public in options.values() for k in public}
            raise unknown("the option of the methods,", key, known)
        if len(having) < len(options):
            notice(
                f"method.{key} is set in {listed(having, most=9)} only, since the other methods do"
                " not have it."
            )
        for m in tables:
            if m["name"] in having:
                m[key] = value
