"""Several runs in one compiled program: seeds, or values of traced hyper-parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import PLAIN, Channel
from coterie.core.compilation import Compilations
from coterie.core.errors import InvalidInput
from coterie.core.metrics import Metric, OwnMetric
from coterie.core.typing import PyTree, Scalar
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.arguments import as_list, as_seeds, judged_by
from coterie.engine.rounds import rounds_block
from coterie.engine.setting import Log, Setting, Spec, State
from coterie.engine.simulate import Result
from coterie.engine.simulator import BLOCK, Simulator
from coterie.engine.snapshot import Snapshot
from coterie.engine.store import DeviceStore
from coterie.engine.training import Training, TrainingOptions
from coterie.methods.base import Method
from coterie.models.base import Model, ModelSpec


class Stack(NamedTuple):
    """Static: rounds that a program may run, and which leaves of the method are stacked."""

    length: int
    axes: tuple[int | None, ...]


def _mapped_block(
    spec: Spec, stack: Stack, setting: Setting, state: State, t0: Scalar, count: Scalar
) -> tuple[State, Log]:
    """`rounds_block` for several seeds and methods; `setting.seed`, `state` and some leaves of the
    method are stacked.
    """
    leaves, structure = jax.tree.flatten(setting.method)

    def run(leaves: Any, seed: Any, state: State) -> tuple[State, Log]:
        method = jax.tree.unflatten(structure, leaves)
        one = setting._replace(method=method, seed=seed)
        return rounds_block(spec, stack.length, one, state, t0, count)

    axes = (list(stack.axes), 0, 0)
    return jax.vmap(run, in_axes=axes)(leaves, setting.seed, state)


compiled_mapped_block = jax.jit(
    _mapped_block, static_argnames=("spec", "stack"), donate_argnames="state"
)


def simulate_many(
    methods: Sequence[Method],
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    seeds: Sequence[int] = (0,),
    graph: Graph | None = None,
    channel: Channel | str = PLAIN,
    metric: str | Metric | OwnMetric | None = None,
    **training: Unpack[TrainingOptions],
) -> list[Result]:
    """Several values of traced hyper-parameters, or several seeds, side by side in one compiled
    program.

    `methods` must be of one kind and differ in floats only; one method with several seeds, several
    methods with one seed, or as many of both (paired) are allowed. Needs the store "device". The
    results are those of `simulate`, one by one, to rounding.
    """
    methods, seeds = as_list("methods", methods, "[FedU()]"), as_seeds(seeds)
    count = max(len(methods), len(seeds))
    if not methods or not seeds or len(methods) not in (1, count) or len(seeds) not in (1, count):
        raise InvalidInput(
            f"simulate_many got {len(methods)} methods and {len(seeds)} seeds; give one of either,"
            " or as many of both."
        )
    methods, seeds = methods * (count // len(methods)), seeds * (count // len(seeds))
    given = judged_by(metric, dict(training))
    begun = time.perf_counter()
    with Compilations() as compilations:
        sims = [
            Simulator(
                m,
                federation,
                model,
                Training.from_config({**given, "seed": s, "store": "device"}),
                graph,
                channel=channel,
            )
            for m, s in zip(methods, seeds, strict=True)
        ]
        if len({jax.tree.structure(s.method) for s in sims}) > 1:
            raise InvalidInput(
                "simulate_many needs methods that differ in floats only, but some differ in their"
                " kind or in whole-number or named options."
            )
        with sims[0].precision():
            snapshots = _run(sims)
    seconds, compiling = time.perf_counter() - begun, compilations.seconds
    return [
        Result(
            s.method, federation, s.training, kept, s.ledger, seconds / count, compiling / count, s
        )
        for s, kept in zip(sims, snapshots, strict=True)
    ]


def _run(sims: list[Simulator]) -> list[list[Snapshot]]:
    """All simulators to their end, side by side."""
    snapshots = [[s.evaluate()] for s in sims]
    lead, options = sims[0], sims[0].training
    length = min(BLOCK, options.rounds)
    method, axes = _stacked([s.method for s in sims])
    seeds = jnp.asarray([s.seed for s in sims])
    setting = lead.setting._replace(method=method, seed=seeds)
    states = [State(s.hub_state, _store(s).rows) for s in sims]
    state = jax.tree.map(lambda *v: jnp.stack(v), *states)
    t = 0
    while t < options.rounds:
        target = min(options.rounds, (t // options.eval_every + 1) * options.eval_every)
        step = min(target - t, length)
        state, logs = compiled_mapped_block(
            spec=lead.spec,
            stack=Stack(length, axes),
            setting=setting,
            state=state,
            t0=t,
            count=step,
        )
        logs = jax.tree.map(np.asarray, logs)
        for i, s in enumerate(sims):
            one = lambda tree: jax.tree.map(lambda leaf: leaf[i], tree)  # noqa: B023
            s.hub_state, _store(s).rows = one(state.hub), one(state.rows)
            s._account(one(logs), step)
        t += step
        if t == target:
            for kept, s in zip(snapshots, sims, strict=True):
                kept.append(s.evaluate())
    return snapshots


def _stacked(methods: Sequence[Method]) -> tuple[PyTree, tuple[int | None, ...]]:
    """One method whose leaves that differ are stacked, and where."""
    leaves = list(zip(*(jax.tree.leaves(m) for m in methods), strict=True))
    alike = [all(_same(leaf[0], other) for other in leaf) for leaf in leaves]
    stacked = [
        leaf[0] if same else jnp.stack([jnp.asarray(v) for v in leaf])
        for leaf, same in zip(leaves, alike, strict=True)
    ]
    method = jax.tree.unflatten(jax.tree.structure(methods[0]), stacked)
    return method, tuple(None if same else 0 for same in alike)


def _store(simulator: Simulator) -> DeviceStore:
    assert isinstance(simulator.store, DeviceStore)
    return simulator.store


def _same(a: Any, b: Any) -> bool:
    return a is b or (np.shape(a) == np.shape(b) and np.array_equal(_value(a), _value(b)))


def _value(leaf: Any) -> Any:
    return (
        jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else np.asarray(leaf)
    )
