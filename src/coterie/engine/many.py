"""Several runs in one compiled program: seeds, or values of traced hyper-parameters."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import PLAIN, Channel
from coterie.core.compilation import Compilations
from coterie.core.errors import Diverged, InvalidInput
from coterie.core.metrics import Metric, OwnMetric
from coterie.core.typing import PyTree, Scalar
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation
from coterie.engine.arguments import as_list, as_seeds, judged_by
from coterie.engine.in_turn import in_turn
from coterie.engine.keeper import Keeper
from coterie.engine.pace import ready
from coterie.engine.rounds import rounds_block
from coterie.engine.setting import Log, Setting, Spec, State
from coterie.engine.side_by_side import side_by_side
from coterie.engine.simulate import Result, add_newcomers
from coterie.engine.simulator import BLOCK, Simulator
from coterie.engine.snapshot import Snapshot
from coterie.engine.store import DeviceStore
from coterie.engine.training import Training, TrainingOptions
from coterie.methods.base import Method
from coterie.models.base import Model, ModelSpec


class Stack(NamedTuple):
    """Static: rounds that a program may run, and which leaves of the method, and whether seeds and
    graphs, are stacked.
    """

    length: int
    axes: tuple[int | None, ...]
    seeds: int | None
    graphs: int | None = None


def _mapped_block(
    spec: Spec, stack: Stack, setting: Setting, state: State, t0: Scalar, count: Scalar
) -> tuple[State, Log]:
    """`rounds_block` for several seeds and methods; `state` is stacked, and so are some leaves of
    the method and, where they differ, the seeds.
    """
    leaves, structure = jax.tree.flatten(setting.method)

    def run(leaves: Any, seed: Any, graph: Any, state: State) -> tuple[State, Log]:
        method = jax.tree.unflatten(structure, leaves)
        one = setting._replace(method=method, seed=seed, graph=graph)
        return rounds_block(spec, stack.length, one, state, t0, count)

    axes = (list(stack.axes), stack.seeds, stack.graphs, 0)
    return jax.vmap(run, in_axes=axes)(leaves, setting.seed, setting.graph, state)


compiled_mapped_block = in_turn(
    _mapped_block, static_argnames=("spec", "stack"), donate_argnames="state"
)


class Many:
    """Runs that go on side by side, some of which may be dropped on the way.

    `methods` must be of one kind and differ in floats only; there is a seed for each. A run that
    diverges is noted in `failed` and the others go on. With the same seed for all, a batch is
    fetched once for all of them.

    The runs that are left are stacked in a width that is a power of 2, so that a search that drops
    some again and again compiles few programs. With `alike`, two searches over other values of the
    same options share their programs too.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        federation: Federation,
        model: Model | ModelSpec | str = "mlr",
        *,
        seeds: Sequence[int],
        graph: Graph | GraphRule | None = None,
        channel: Channel | str = PLAIN,
        training: dict[str, Any],
        alike: bool = False,
    ) -> None:
        self.sims: list[Simulator] = []
        for method, seed in zip(methods, seeds, strict=True):
            options = Training.from_config({**training, "seed": seed, "store": "device"})
            like = self.sims[0] if self.sims else None
            made = Simulator(method, federation, model, options, graph, channel=channel, like=like)
            self.sims.append(made)
        if self.sims[0].supply.edges is not None:
            raise InvalidInput(
                f"{self.sims[0].method.name}.edges is {self.sims[0].method.edges}, but runs side by"
                " side take all edges; simulate them one by one."
            )
        if len({jax.tree.structure(s.method) for s in self.sims}) > 1:
            raise InvalidInput(
                "simulate_many needs methods that differ in floats only, but some differ in their"
                " kind or in whole-number or named options."
            )
        self.t, self.alike = 0, alike
        self.worked = 0
        """The last round in which there was work."""
        self.failed: dict[int, Diverged] = {}
        self.members = list(range(len(self.sims)))
        """The runs that go on."""
        self.slots: list[int] = []
        """Which run each place of the stack holds; the last may stand there several times."""
        with self.sims[0].precision():
            states = [State(s.hub_state, _store(s).rows) for s in self.sims]
            self.state = jax.tree.map(lambda *v: jnp.stack(v), *states)
            self.slots = list(self.members)
            self._arrange()

    @property
    def training(self) -> Training:
        return self.sims[0].training

    def _arrange(self) -> None:
        """Stack the runs that are left, unless it would save nothing."""
        count = len(self.members)
        width = 1 << (count - 1).bit_length() if self.alike else count
        if width < len(self.slots) or (self.alike and width > len(self.slots)):
            padded = self.members + self.members[-1:] * (width - count)
            places = np.array([self.slots.index(m) for m in padded])
            self.state = jax.tree.map(lambda leaf: leaf[places], self.state)
            self.slots = padded
        lead = self.sims[self.members[0]]
        method, axes = _stacked([self.sims[m].method for m in self.slots], self.alike)
        seeds = [self.sims[m].seed for m in self.slots]
        same = len(set(seeds)) == 1
        learnt = lead.kinship is not None
        length = min(BLOCK, self.training.rounds)
        self.stack = Stack(length, axes, None if same else 0, 0 if learnt else None)
        self.setting = lead.setting._replace(
            method=method, seed=lead.setting.seed if same else jnp.asarray(seeds)
        )
        if learnt:
            self.setting = self.setting._replace(graph=self._graphs())
        self.spec = _grouped(lead, len(self.slots))

    def _graphs(self) -> Any:
        """Every run's graph, where each learns its own."""
        graphs = [self.sims[m].setting.graph for m in self.slots]
        return jax.tree.map(lambda *v: jnp.stack(v), *graphs)

    def _learn(self, rounds: int) -> int:
        """Graphs that are due are learnt; gives how many rounds may go then, `rounds` at most."""
        lead = self.sims[self.members[0]].kinship
        if lead is None:
            return rounds
        with self.sims[0].precision():
            if lead.rule.due(self.t):
                self.give_states()
            for m in self.members:
                kinship = self.sims[m].kinship
                assert kinship is not None
                rounds = kinship.before(self.sims[m], rounds)
            if lead.rule.due(self.t):
                self.setting = self.setting._replace(graph=self._graphs())
        return rounds

    def keep(self, members: Sequence[int]) -> None:
        """Go on with some of the runs only."""
        self.members = [m for m in self.members if m in set(members)]
        if self.members:
            with self.sims[0].precision():
                self._arrange()

    def advance(self, rounds: int) -> None:
        """So many rounds of all runs that are left, at most as many as there are to go."""
        target = min(self.t + rounds, self.training.rounds)
        while self.t < target and self.members:
            idle, step = ready(self.sims[0].pace, self.t, self._learn(target - self.t))
            if idle:
                self.t += idle
                for m in self.members:
                    self.sims[m].t = self.t
                continue
            step = min(step, self.stack.length)
            with self.sims[0].precision():
                self.state, logs = compiled_mapped_block(
                    spec=self.spec,
                    stack=self.stack,
                    setting=self.setting,
                    state=self.state._replace(before=None),
                    t0=self.t,
                    count=step,
                )
                logs = jax.tree.map(np.asarray, logs)
            self.t += step
            self.worked = self.t - 1
            for m in self.members:
                place = self.slots.index(m)
                log = jax.tree.map(lambda leaf: leaf[place], logs)  # noqa: B023
                try:
                    self.sims[m]._account(log, step)
                except Diverged as error:
                    self.failed[m] = error
            self.members = [m for m in self.members if m not in self.failed]

    def give_states(self) -> None:
        """Hand every run that is left its own state."""
        with self.sims[0].precision():
            for m in self.members:
                place = self.slots.index(m)
                one = jax.tree.map(lambda leaf: leaf[place], self.state)  # noqa: B023
                self.sims[m].hub_state, _store(self.sims[m]).rows = one.hub, one.rows
                self.sims[m].unseen.put_off(one.before, self.worked)

    def evaluate(self) -> dict[int, Snapshot]:
        """An evaluation of every run that is left; one in which somebody is found to have diverged
        is left no more.
        """
        self.give_states()
        found = {}
        for m in self.members:
            try:
                found[m] = self.sims[m].evaluate()
            except Diverged as error:
                self.failed[m] = error
        self.members = list(found)
        return found


def simulate_many(
    methods: Sequence[Method],
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    seeds: Sequence[int] = (0,),
    graph: Graph | GraphRule | None = None,
    channel: Channel | str = PLAIN,
    metric: str | Metric | OwnMetric | None = None,
    keep_collapsed: bool = False,
    **training: Unpack[TrainingOptions],
) -> list[Result]:
    """Several values of traced hyper-parameters, or several seeds, side by side in one compiled
    program.

    `methods` must be of one kind and differ in floats only; one method with several seeds, several
    methods with one seed, or as many of both (paired) are allowed. Needs the store "device". The
    results are those of `simulate`, one by one, to rounding. A run that diverges raises `Diverged`;
    with `keep_collapsed` it ends with `collapsed` set, and the others go on.
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
        many = Many(
            methods,
            federation,
            model,
            seeds=seeds,
            graph=graph,
            channel=channel,
            training=given,
        )
        snapshots, keepers = _run(many, keep_collapsed)
    seconds, compiling = time.perf_counter() - begun, compilations.seconds
    out = []
    for i, (s, kept, keeper) in enumerate(zip(many.sims, snapshots, keepers, strict=True)):
        failed = many.failed.get(i)
        out.append(
            Result(
                s.method,
                federation,
                s.training,
                kept,
                s.ledger,
                seconds / count,
                compiling / count,
                s,
                None if failed is None else str(failed),
                None if failed is None else failed.round,
                keeper.round if keeper.keeps and failed is None else None,
            )
        )
    return out


def _run(many: Many, keep_collapsed: bool) -> tuple[list[list[Snapshot]], list[Keeper]]:
    """All runs to their end."""
    options = many.training
    snapshots: list[list[Snapshot]] = [[] for _ in many.sims]
    keepers = [Keeper(s.training) for s in many.sims]

    def look() -> None:
        for m, snapshot in many.evaluate().items():
            snapshots[m].append(snapshot)
            keepers[m].look(snapshot, many.sims[m])

    look()
    while many.t < options.rounds and many.members:
        many.advance(options.eval_every - many.t % options.eval_every)
        look()
        if many.failed and not keep_collapsed:
            raise next(iter(many.failed.values()))
        many.keep([m for m in many.members if not keepers[m].stopped])
    for m, (keeper, simulator) in enumerate(zip(keepers, many.sims, strict=True)):
        if m not in many.failed:
            add_newcomers(snapshots[m], keeper.finish(simulator))
    return snapshots, keepers


def _grouped(lead: Simulator, width: int) -> Spec:
    """The lead's spec, with groups of clients that are smaller by as many runs as there are."""
    spec, options = lead.spec, lead.training
    if options.clients_at_once is not None or width == 1:
        return spec
    trainers = spec.cohort if spec.unseen else lead.method.takers(spec.cohort, spec.clients)
    number = jnp.dtype(options.precision).itemsize
    shared = sum(np.size(leaf) for leaf in jax.tree.leaves(lead.method)) * number
    fitting = side_by_side(trainers, width * lead.model.parameters() * number, shared)
    return dataclasses.replace(spec, at_once=min(spec.at_once, fitting))


def _stacked(
    methods: Sequence[Method], alike: bool = False
) -> tuple[PyTree, tuple[int | None, ...]]:
    """One method whose leaves that differ are stacked, and where; with `alike`, all its numbers."""
    leaves = list(zip(*(jax.tree.leaves(m) for m in methods), strict=True))
    shared = [
        not (alike and np.ndim(leaf[0]) == 0 and isinstance(leaf[0], float))
        and all(_same(leaf[0], other) for other in leaf)
        for leaf in leaves
    ]
    stacked = [
        leaf[0] if same else jnp.stack([jnp.asarray(v) for v in leaf])
        for leaf, same in zip(leaves, shared, strict=True)
    ]
    method = jax.tree.unflatten(jax.tree.structure(methods[0]), stacked)
    return method, tuple(None if same else 0 for same in shared)


def _store(simulator: Simulator) -> DeviceStore:
    assert isinstance(simulator.kept, DeviceStore)
    return simulator.kept


def _same(a: Any, b: Any) -> bool:
    return a is b or (np.shape(a) == np.shape(b) and np.array_equal(_value(a), _value(b)))


def _value(leaf: Any) -> Any:
    return (
        jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else np.asarray(leaf)
    )
