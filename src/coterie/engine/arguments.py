"""What people give from Python: each argument is made what it must be, or refused in one sentence.

Names stand for what is registered under them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from coterie.adversary import Attack, get_attack
from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput, shown
from coterie.core.metrics import metric_name
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.arguments import as_federation, as_seed
from coterie.data.federation import Federation
from coterie.engine.training import Training
from coterie.methods.base import Method, get_method
from coterie.models.base import Model, ModelSpec, get_model

__all__ = [
    "as_attack",
    "as_channel",
    "as_contender",
    "as_federation",
    "as_graph",
    "as_list",
    "as_method",
    "as_model",
    "as_seed",
    "as_seeds",
    "as_training",
    "check_batch",
    "check_training",
    "judged_by",
]


def _wrong(what: str, value: Any, kind: type, must: str) -> InvalidInput:
    """The sentence, with the remedy where the class was given in the place of an object."""
    if isinstance(value, type) and issubclass(value, kind):
        must += f"; call it: {value.__name__}()"
    return InvalidInput(f"{what} is {shown(value)}, but must be {must}.")


def as_method(value: Any) -> Method:
    """A method, or the name of one."""
    if isinstance(value, str):
        return get_method(value)
    if not isinstance(value, Method):
        raise _wrong("the method", value, Method, 'a method or its name, e.g. FedU() or "fedu"')
    return value


def as_channel(value: Any) -> Channel:
    """A channel, or the name of one."""
    if isinstance(value, str):
        return get_channel(value)
    if not isinstance(value, Channel):
        must = 'a channel or its name, e.g. "plain" or get_channel("top-k", {"k": 9})'
        raise _wrong("the channel", value, Channel, must)
    return value


def as_attack(value: Any) -> Attack | None:
    """An attack, the name of one, or None."""
    if isinstance(value, str):
        return get_attack(value)
    if value is not None and not isinstance(value, Attack):
        raise _wrong("the attack", value, Attack, 'an attack, its name, e.g. "sign-flip", or None')
    return value


def as_graph(value: Any) -> Graph | GraphRule | None:
    """A graph, a rule that learns one, or None."""
    if value is None or isinstance(value, Graph | GraphRule):
        return value
    hint = ""
    if isinstance(value, str):
        hint = f"; build one with coterie.graph.build({shown(value)}, federation)"
    elif isinstance(value, (list, tuple)) or hasattr(value, "shape"):
        hint = "; make one of weights with coterie.graph.from_matrix"
    raise InvalidInput(
        f"the graph is {shown(value)}, but must be a Graph, a rule that learns one, or None{hint}."
    )


def as_model(value: Any) -> Model | ModelSpec:
    """A model, the options of a shipped one, or its name."""
    if isinstance(value, str):
        return get_model(value)
    if not isinstance(value, (Model, ModelSpec)):
        must = 'a name, e.g. "mlr", a Model(init, apply) or one of the shipped models'
        raise _wrong("the model", value, ModelSpec, must)
    return value


def as_training(value: Any) -> Training:
    """The options of a run."""
    if not isinstance(value, Training):
        must = "Training options, e.g. Training(rounds=100)"
        raise _wrong("training", value, Training, must)
    return value


def judged_by(metric: Any, training: dict[str, Any]) -> dict[str, Any]:
    """Options of `Training` with this metric: a name, a `Metric`, a function, or None."""
    return training if metric is None else {**training, "metric": metric_name(metric)}


def as_list(what: str, value: Any, example: str) -> list[Any]:
    """Several of something; a string is one thing, not a list of letters."""
    if isinstance(value, (str, bytes, dict, type)) or not isinstance(value, Iterable):
        raise InvalidInput(f"{what} is {shown(value)}, but must be a list, e.g. {example}.")
    if hasattr(value, "columns"):
        raise InvalidInput(f"{what} is {shown(value)}, but must be a list, e.g. {example}.")
    try:
        return list(value)
    except TypeError:  # an array without dimensions
        raise InvalidInput(
            f"{what} is {shown(value)}, but must be a list, e.g. {example}."
        ) from None


def as_seeds(value: Any) -> list[int]:
    """Whole numbers ≥ 0; at least one."""
    seeds = [as_seed(seed) for seed in as_list("seeds", value, "[0, 1, 2]")]
    if not seeds:
        raise InvalidInput("seeds is empty, but must name at least 1 seed.")
    return seeds


def check_batch(training: Training, federation: Federation) -> None:
    """Refuse batches of which not even one client's fits into the memory of this machine."""
    if training.sampling == "full":
        return
    row = int(np.prod(federation.input_shape)) * np.dtype(training.precision).itemsize
    most = min(2**31 - 1, _memory() // max(1, row))
    if training.batch_size > most:
        raise InvalidInput(
            f"training.batch_size is {training.batch_size}, but must be at most {most}: batches of"
            " more samples do not fit into the memory of this machine."
        )


def check_training(training: Training, federation: Federation) -> None:
    """Refuse options of a run that this federation cannot have."""
    check_batch(training, federation)
    members, _ = training.hold_out(federation)
    if training.plain or federation.validation.sizes[members].any():
        return
    what = 'keep is "best"' if training.keep == "best" else f"patience is {training.patience}"
    raise InvalidInput(
        f"training.{what}, but {federation.name!r} has no validation data to tell the best round"
        " by; give it a validation share > 0."
    )


def _memory() -> int:
    """Bytes of memory; much, where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 2**50


def as_contender(value: Any) -> tuple[Method, Channel]:
    """A method, or a method and its channel as a pair."""
    if not isinstance(value, tuple):
        return as_method(value), PLAIN
    if len(value) != 2:
        raise InvalidInput(
            f"a method is given as a tuple of {len(value)}, but must be a pair of a method and a"
            " channel."
        )
    return as_method(value[0]), as_channel(value[1])
