"""Wrong calls of the Python interface: each is one sentence, an InvalidInput, before any work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie import Federation, InvalidInput, Simulator, Training, graph
from coterie.adversary import get_attack
from coterie.channel import get_channel
from coterie.data import get_source
from coterie.models import get_model

FRAME = pd.DataFrame({"a": range(30), "b": range(30)})
ODD: dict[str, Any] = {
    "None": None,
    "a number": 3.5,
    "a list": [1, [2]],
    "a table": FRAME,
    "an array": np.zeros((3, 3)),
    "a class": dict,
    "a function": len,
    "bytes": b"fedu",
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ODD.items() if name not in names}


def pick(what: str) -> dict[str, Any]:
    """Values that cannot stand for this argument."""
    special: dict[str, dict[str, Any]] = {
        "method": {**ODD, "the method's class": coterie.FedU, "a misspelt name": "fedyou"},
        "federation": {**ODD, "a name": "digits"},
        "graph": {**without("None"), "a name": "ring"},
        "channel": {**ODD, "a channel's class": type(get_channel("top-k")), "a name": "tock"},
        "attack": {**without("None"), "an attack's class": type(get_attack("gaussian"))},
        "seeds": {**without(), "words": "012", "below 0": [-1], "halves": [0.5], "none": []},
        "model": {**ODD, "a model's class": type(get_model("mlr")), "a misspelt name": "mlrr"},
        "training": {**ODD, "its class": Training, "a dictionary": {"rounds": 2}},
        "methods": {**without("a list"), "a name": "fedu", "a list": [None], "empty": []},
    }
    return special[what]


CALLS: dict[str, Callable[[Federation, Any], Any]] = {
    "simulate, method": lambda f, v: coterie.simulate(v, f, rounds=1),
    "simulate, federation": lambda f, v: coterie.simulate("local", v, rounds=1),
    "simulate, graph": lambda f, v: coterie.simulate("fedu", f, graph=v, rounds=1),
    "simulate, channel": lambda f, v: coterie.simulate("fedavg", f, channel=v, rounds=1),
    "simulate, attack": lambda f, v: coterie.simulate("fedavg", f, attack=v, rounds=1),
    "simulate, model": lambda f, v: coterie.simulate("local", f, v, rounds=1),
    "simulate_many, methods": lambda f, v: coterie.simulate_many(v, f, rounds=1),
    "simulate_many, federation": lambda f, v: coterie.simulate_many([coterie.Local()], v, rounds=1),
    "simulate_many, seeds": lambda f, v: coterie.simulate_many(
        [coterie.Local()], f, seeds=v, rounds=1
    ),
    "simulate_many, graph": lambda f, v: coterie.simulate_many(
        [coterie.FedU()], f, graph=v, rounds=1
    ),
    "simulate_many, channel": lambda f, v: coterie.simulate_many(
        [coterie.FedAvg()], f, channel=v, rounds=1
    ),
    "simulate_many, model": lambda f, v: coterie.simulate_many([coterie.Local()], f, v, rounds=1),
    "compare, methods": lambda f, v: coterie.compare(v, f, rounds=1),
    "compare, federation": lambda f, v: coterie.compare(["local"], v, rounds=1),
    "compare, seeds": lambda f, v: coterie.compare(["local"], f, seeds=v, rounds=1),
    "compare, graph": lambda f, v: coterie.compare(["fedu"], f, graph=v, rounds=1),
    "compare, model": lambda f, v: coterie.compare(["local"], f, v, rounds=1),
    "compare, channel": lambda f, v: coterie.compare([("fedavg", v)], f, rounds=1),
    "Simulator, method": lambda f, v: Simulator(v, f, "mlr", Training()),
    "Simulator, federation": lambda f, v: Simulator("local", v, "mlr", Training()),
    "Simulator, model": lambda f, v: Simulator("local", f, v, Training()),
    "Simulator, training": lambda f, v: Simulator("local", f, "mlr", v),
    "Simulator, graph": lambda f, v: Simulator("fedu", f, "mlr", Training(), v),
    "Simulator, channel": lambda f, v: Simulator("fedavg", f, "mlr", Training(), channel=v),
    "Simulator, attack": lambda f, v: Simulator("fedavg", f, "mlr", Training(), attack=v),
    "graph.build, federation": lambda f, v: graph.build("ring", v),
}
WRONG = [
    (f"{call}: {name}", CALLS[call], value)
    for call in CALLS
    for name, value in pick(call.split(", ")[1]).items()
]
NAMES: dict[str, Callable[[Any], Any]] = {
    "get_method": coterie.get_method,
    "get_model": get_model,
    "get_channel": get_channel,
    "get_attack": get_attack,
    "get_source": get_source,
    "load": coterie.load,
    "options of a method": lambda v: coterie.get_method("fedu", v if v is not None else 5),
}
WRONG += [
    (f"{call}: {name}", lambda f, v, call=call: NAMES[call](v), value)
    for call in NAMES
    for name, value in ODD.items()
]
OPTIONS: dict[str, Callable[[Any], Any]] = {
    "Training(rounds)": lambda v: Training(rounds=v),
    "Training(sampling)": lambda v: Training(sampling=v),
    "FedU(lr)": lambda v: coterie.FedU(lr=v),
    "FedU(local_steps)": lambda v: coterie.FedU(local_steps=v),
    "fedu with an lr": lambda v: coterie.get_method("fedu", {"lr": v}),
    "rounds of simulate": lambda v: coterie.simulate("local", None, rounds=v),
}
WRONG += [
    (f"{call}: {name}", lambda f, v, call=call: OPTIONS[call](v), value)
    for call in OPTIONS
    for name, value in without("a number", "an array").items()
]
WRONG += [
    ("load: seed", lambda f, v: coterie.load("digits", seed=v), "zero"),
    ("load: a seed below 0", lambda f, v: coterie.load("digits", seed=v), -1),
    ("compare: a seed twice", lambda f, v: coterie.compare(["local"], f, seeds=v), [1, 1]),
    ("compare: a triple", lambda f, v: coterie.compare([v], f), ("local", "plain", 3)),
    ("graph.build: kind", lambda f, v: graph.build(v, f), None),
    ("graph.build: kind", lambda f, v: graph.build(v, f), ["ring"]),
    ("graph.build: weight", lambda f, v: graph.build("ring", f, weight=v), None),
    ("graph.build: weight", lambda f, v: graph.build("ring", f, weight=v), "heavy"),
    ("graph.build: matrix", lambda f, v: graph.build("matrix", f, matrix=v), 7),
    ("graph.build: matrix", lambda f, v: graph.build("matrix", f, matrix=v), "no-such.npy"),
    ("graph.build: matrix", lambda f, v: graph.build("matrix", f, matrix=v), FRAME),
    ("from_matrix", lambda f, v: graph.from_matrix(v), None),
    ("from_matrix", lambda f, v: graph.from_matrix(v), "ring"),
    ("Graph", lambda f, v: graph.Graph(v), None),
    ("Graph", lambda f, v: graph.Graph(v), "ring"),
    ("a huge batch", lambda f, v: coterie.simulate("local", f, batch_size=v), 10**12),
    ("a huge batch", lambda f, v: coterie.simulate("local", f, batch_size=v), 10**30),
]


@pytest.mark.parametrize(("call", "value"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_call_is_one_sentence(
    wide: Federation, call: Callable[[Federation, Any], Any], value: Any
) -> None:
    with pytest.raises(InvalidInput) as told:
        call(wide, value)
    text = str(told.value)
    assert "\n" not in text
    assert text.endswith((".", "?")), text
    assert len(text) < 600


def test_there_are_many_of_them() -> None:
    assert len(WRONG) > 97


def test_names_are_taken_where_a_thing_is_asked_for(wide: Federation) -> None:
    by_name = coterie.simulate("fedavg", wide, channel="top-k", attack="sign-flip", rounds=1)
    by_thing = coterie.simulate(
        coterie.FedAvg(),
        wide,
        channel=get_channel("top-k"),
        attack=get_attack("sign-flip"),
        rounds=1,
    )
    assert np.array_equal(by_name.client_scores(), by_thing.client_scores(), equal_nan=True)


def test_a_class_in_the_place_of_an_object_is_told_how(wide: Federation) -> None:
    with pytest.raises(InvalidInput, match=r"the class FedU, but must be .*; call it: FedU\(\)"):
        coterie.simulate(coterie.FedU, wide)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"load one by its name with coterie.load\('digits'\)"):
        coterie.simulate("fedu", "digits")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"make one of a table with coterie.from_table"):
        coterie.simulate("fedu", FRAME)
