"""Float hyper-parameters are traced: another value runs the program that is there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import coterie
from coterie import METHODS, Federation, Method
from coterie.core.compilation import Compilations
from coterie.engine.exchange import exchange_of
from tests.support.conformance_cases import (
    NAMES,
    SAMPLED,
    TRAINING,
    model_for,
    samples_cohorts,
    small,
    thinned,
    uneven_graph,
)

# Options that are nothing by default need a value before a second value can be compared with it;
# together, to need one program only.
GIVEN = {
    **{"mix_lr": 0.3, "tolerance": 0.02, "head_lr": 0.2, "alpha": 0.3, "full": 9.0, "votes": 0.3},
    **{"inner_solver": "nesterov", "inner_momentum": 0.3},
}


def run(method: Method, federation: Federation, model: Any = None, **more: Any) -> int:
    options = {**(SAMPLED if samples_cohorts(method) else TRAINING), **more}
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    with Compilations() as compilations:
        coterie.simulate(method, federation, model or model_for(method), graph=graph, **options)
    return compilations.count


@pytest.mark.parametrize("name", thinned(NAMES))
def test_a_second_value_of_any_float_compiles_nothing(name: str, ragged: Federation) -> None:
    public = METHODS[name].public()
    method = small(name, **{k: v for k, v in GIVEN.items() if k in public})
    traced = [k for k, d in public.items() if d.traced and d.read is None]
    assert ("lr" in traced) == (method.work().lr is not None), (
        "only a method without a step size may lack lr"
    )
    assert all(d.traced for k, d in public.items() if float in d.kinds and k != "p")
    run(method, ragged)
    for option in traced:
        other = method.replace(**{option: getattr(method, option) * 0.9 + 0.01})
        assert run(other, ragged) == 0, f"{name}.{option} compiles again"
    assert run(method, ragged, seed=11) == 0, "the seed compiles again"


def test_a_static_option_does_compile_so_that_counting_means_something(ragged: Federation) -> None:
    run(small("fedu"), ragged)
    assert run(small("fedu", local_steps=4), ragged) >= 1
    assert run(small("fedu", local_steps=4), ragged) == 0


def test_the_floats_of_optimisers_are_traced(ragged: Federation) -> None:
    def method(b1: float, clip: float, momentum: float, server_lr: float) -> Method:
        client = {"name": "adam", "b1": b1, "clip": clip}
        hub = {"name": "fedavgm", "momentum": momentum}
        return small("fedavg", optimizer=client, server_optimizer=hub, server_lr=server_lr)

    run(method(0.9, 1.0, 0.9, 0.5), ragged)
    assert run(method(0.8, 2.0, 0.5, 0.7), ragged) == 0
    assert run(small("fedavg", optimizer="adam"), ragged) >= 1, "without clipping it is another"


def test_schedules_and_l2_are_traced_too(ragged: Federation) -> None:
    spec = lambda l2: coterie.get_model("mlr", {"l2": l2})
    decaying = lambda scale: small("fedu", lr={"kind": "inverse-sqrt", "scale": scale})
    run(decaying(0.1), ragged, spec(0.1))
    assert run(decaying(0.2), ragged, spec(0.3)) == 0


def test_rounds_left_do_not_compile_again(ragged: Federation) -> None:
    simulator = coterie.Simulator(
        small("local"),
        ragged,
        "mlr",
        coterie.Training(**{**TRAINING, "rounds": 40, "eval_every": 40}),
    )
    simulator.advance(1)
    with Compilations() as compilations:
        while simulator.t < 40:
            simulator.advance(min(7, 40 - simulator.t))
    assert compilations.count == 0


def test_programs_from_the_disk_cache_are_counted() -> None:
    """Else a warm cache would make every test in this file pass."""
    assert jax.config.jax_compilation_cache_dir
    for _ in range(
        2
    ):  # a new function each time, but the same program: the second time it is on disk for certain
        with Compilations() as compilations:
            jax.jit(lambda x: jnp.sin(x) * 3.25 - 1)(jnp.arange(11.0))
        assert compilations.count >= 1
