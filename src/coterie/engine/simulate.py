"""The vectorised simulator: all clients of a federation on one machine, whole blocks of rounds
compiled.

>>> import coterie
>>> fed = coterie.load("digits", clients=4)
>>> result = coterie.simulate(coterie.FedU(local_steps=2), fed, "mlr", rounds=2, eval_every=2)
>>> result.rounds, result.client_scores().shape
([0, 2], (4,))
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack, Threat, draw_liars
from coterie.channel import PLAIN, Channel
from coterie.channel.codec import size_of
from coterie.channel.link import HEADER
from coterie.core.compilation import Compilations
from coterie.core.errors import Diverged, InvalidInput
from coterie.core.ledger import Hearing, Ledger
from coterie.core.randomness import Role, stream
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph, complete
from coterie.data.federation import Federation
from coterie.engine import rounds as engine_rounds
from coterie.engine.arguments import (
    as_attack,
    as_channel,
    as_federation,
    as_graph,
    as_list,
    as_method,
    as_model,
    as_seeds,
    as_training,
    check_batch,
)
from coterie.engine.evaluate import Scores, evaluate, hold
from coterie.engine.rounds import Coupled, Data, Log, Row, Spec
from coterie.engine.side_by_side import side_by_side
from coterie.engine.store import DeviceStore, HostStore, make_store
from coterie.engine.training import Training
from coterie.methods.base import Condition, Facts, Method
from coterie.models.base import Model, ModelSpec
from coterie.models.objective import Learner

BLOCK = 50
"""Rounds that one call of the compiled program may run at most."""


@lru_cache(maxsize=64)
def _built(spec: ModelSpec, input_shape: tuple[int, ...], outputs: int) -> Model:
    """Models are built once per shape, so that runs share compiled programs."""
    return spec.build(input_shape, outputs)


def build_model(model: Model | ModelSpec | str, federation: Federation) -> Model:
    """A model for a federation: by name, by options, or as it is."""
    model = as_model(model)
    if isinstance(model, Model):
        model.check(federation.input_shape, federation.outputs, federation.task)
        return model
    l2 = float(getattr(model, "l2", 0.0))
    plain = model.replace(l2=0.0) if "l2" in model.public() else model
    built = dataclasses.replace(_built(plain, federation.input_shape, federation.outputs), l2=l2)
    built.check(federation.input_shape, federation.outputs, federation.task)
    return built


@dataclasses.dataclass
class Snapshot:
    """One evaluation: after `round` rounds, per split the scores of all views and clients, and what
    it had cost by then.
    """

    round: int
    scores: dict[str, Scores]
    up: int
    down: int
    gradients: int


class Simulator:
    """A method on a federation: `advance` runs rounds, `evaluate` looks at all clients. `simulate`
    and `run` drive it.
    """

    def __init__(
        self,
        method: Method | str,
        federation: Federation,
        model: Model | ModelSpec | str,
        training: Training,
        graph: Graph | None = None,
        folder: Path | None = None,
        channel: Channel | str = PLAIN,
        attack: Attack | None = None,
    ) -> None:
        asked, federation, model = as_method(method), as_federation(federation), as_model(model)
        training, graph, attack = as_training(training), as_graph(graph), as_attack(attack)
        self.training, self.federation, self.channel = training, federation, as_channel(channel)
        check_batch(training, federation)
        self.everybody, self.attack = federation, attack
        self.members, self.held_out = training.hold_out(federation)
        if len(self.held_out):
            self.federation = federation.subset(self.members)
            graph = (
                graph.check_size(federation.clients).subset(self.members)
                if graph is not None
                else None
            )
        self.model = build_model(model, federation)
        if asked.needs_exact and not self.channel.lossless:
            raise InvalidInput(
                f"the channel is {self.channel.name!r}, but {asked.name} needs its messages as they"
                ' are: it must be "plain".'
            )
        over_copies = asked.exchange == "graph" or self.channel.down
        if over_copies and asked.exchange in ("star", "graph") and not self.channel.contracts():
            raise InvalidInput(
                f"the channel {self.channel.name!r} may send more error than there was to send,"
                f" which the public copies that {asked.name} goes over would add up without bound;"
                " make it finer (qsgd: levels² above bucket; random-k: not scaled)."
            )
        with self.precision():
            self._prepare(asked, graph, folder)

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        with jax.enable_x64(self.training.precision == "float64"):
            yield

    def _prepare(self, method: Method, graph: Graph | None, folder: Path | None) -> None:
        fed, options = self.federation, self.training
        dtype = jnp.dtype(options.precision)
        n, s = fed.clients, options.cohort_size(fed)
        self.seed = options.seed
        template = self.model.vector(stream(self.seed, Role.INIT)).map(
            lambda leaf: leaf.astype(dtype)
        )
        self.template = template
        self.graph = self._graph(method, graph, n, s)
        self.method: Method = method.bind(
            template,
            stream(self.seed, Role.PROJECTION),
            Facts(n, int(fed.train.sizes.max()), fed.outputs, fed.task),
        )
        pooled = method.exchange == "pooled"
        full = options.sampling == "full"
        batch = (
            (len(fed.train) if pooled else int(fed.train.sizes.max()))
            if full
            else options.batch_size * (s if pooled else 1)
        )
        model, sampling = self.model, options.sampling
        learner = Learner(
            model.apply,
            model.class_major,
            fed.task,
            batch,
            sampling,  # type: ignore[arg-type]
            model.input_layer,
            model.loss,
        )
        trainers = n if method.trains_all else s
        steps = -(-fed.train.sizes // batch)
        uneven = method.work().epochs is not None and steps.max() > 1.5 * steps.mean()
        if (at_once := options.clients_at_once) is None:
            shared = sum(np.size(leaf) for leaf in jax.tree.leaves(self.method))
            at_once = side_by_side(
                trainers, template.size * dtype.itemsize, shared * dtype.itemsize
            )
            at_once = min(at_once, max(1, -(-trainers // 8))) if uneven else at_once
        self.spec = Spec(learner, n, s, min(at_once, trainers), sort_by_work=uneven)
        held = hold(fed.train, dtype)
        start, size = held.start, held.size
        if pooled:
            start, size = jnp.zeros_like(start), jnp.full_like(size, len(fed.train))
        self.data = Data(
            held.x, held.y, start, size, jnp.asarray(self.model.l2, dtype), options.batch_schedule
        )
        self.threat = self._threat()
        self.coupled = self._coupled(dtype)
        self.centre = engine_rounds.open_hub(self.method, self.channel, template)
        path = folder / "store.scratch" if folder is not None else None
        row = engine_rounds.open_row(
            self.spec, self.method, self.channel, self.data, self.centre, template
        )
        self.store = make_store(options.store, n, row, path)
        self.held = {
            name: hold(split, dtype)
            for name, split in (("validation", fed.validation), ("test", fed.test))
            if len(split)
        }
        if options.train_metrics:
            self.held["train"] = held
        self.t = 0
        self.ledger = Ledger(n)
        self.dirty = np.zeros(n, bool)
        self.heard = Hearing(n)
        self._seconds_per_round = 0.0

    @property
    def hub(self) -> Any:
        """What the method keeps at its hub."""
        return self.centre.state

    def _threat(self) -> Threat | None:
        """Who lies, and what labels they train on."""
        n, fed, attack = self.federation.clients, self.federation, self.attack
        self.liars: NDArray[np.bool_] = np.zeros(n, bool)
        if attack is None:
            return None
        self.liars = draw_liars(self.seed, n, attack.fraction)
        if self.liars.all():
            raise InvalidInput(
                f"attack.fraction is {attack.fraction:g}, but must leave at least 1 of {n} clients"
                " honest."
            )
        if attack.on_data:
            if fed.task != "classification":
                raise InvalidInput(
                    f"the attack is {attack.name!r}, but that needs class labels and the task is"
                    " regression."
                )
            y = fed.train.y.copy()
            for k in np.flatnonzero(self.liars):
                rows = slice(int(fed.train.offsets[k]), int(fed.train.offsets[k + 1]))
                y[rows] = attack.poisoned(
                    y[rows], fed.classes, np.random.default_rng([self.seed, int(k), 0xBAD])
                )
            self.data = self.data._replace(lying_y=jnp.asarray(y.astype(np.int32)))
        return Threat(attack, jnp.asarray(self.liars))

    @staticmethod
    def _graph(method: Method, graph: Graph | None, n: int, s: int) -> Graph | None:
        if method.exchange != "graph":
            return None
        if not method.hub_between and s < n:
            raise InvalidInput(
                f"training.cohort is {s}, but {method.name} has no hub that could sample clients,"
                f" so it must be {n}, all of them."
            )
        return (complete(n) if graph is None else graph).check_size(n)

    def _coupled(self, dtype: Any) -> Coupled:
        if self.graph is None:
            return Coupled()
        # A table of neighbours costs its largest degree per client, a matrix N: take what is
        # clearly smaller.
        if self.graph.degrees.max(initial=0) * 4 < self.graph.clients:
            index, weight = self.graph.table()
            return Coupled(index=jnp.asarray(index), weight=jnp.asarray(weight, dtype))
        return Coupled(dense=jnp.asarray(self.graph.weights.toarray(), dtype))

    # -- rounds ------------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """The step-size conditions of the method on this problem."""
        norm = self.graph.laplacian_norm if self.graph is not None else 0.0
        with self.precision():
            return self.method.conditions(self.template, norm)

    def advance(self, rounds: int) -> int:
        """Run up to `rounds` rounds, as many as fit in about a second; returns how many.

        Raises Diverged.
        """
        with self.precision():
            if isinstance(self.store, DeviceStore):
                count = min(
                    rounds,
                    BLOCK,
                    max(1, int(1.0 / self._seconds_per_round)) if self._seconds_per_round else 1,
                )
                begun = time.perf_counter()
                logs = self._device_block(count)
                spent = (time.perf_counter() - begun) / count
                self._seconds_per_round = spent if self.t else 0.0  # the first call compiles
            else:
                count, logs = 1, self._host_round()
            self._account(logs, count)
        return count

    def _device_block(self, count: int) -> Log:
        assert isinstance(self.store, DeviceStore)
        length = min(BLOCK, self.training.rounds)
        self.centre, self.store.rows, logs = engine_rounds.compiled_block(
            self.spec,
            length,
            self.method,
            self.channel,
            self.threat,
            self.data,
            self.coupled,
            self.seed,
            self.centre,
            self.store.rows,
            self.t,
            count,
        )
        return jax.tree.map(np.asarray, logs)

    def _host_round(self) -> Log:
        """A round on rows that live in host memory or in a file: only those that are needed
        move.
        """
        assert isinstance(self.store, HostStore)
        spec, method, n = self.spec, self.method, self.spec.clients
        sampled, pool_ids, pool = None, None, None
        if method.exchange == "pooled":
            ids: NDArray[Any] = np.zeros(1, np.int32)
            rows: Any = Row(())
        else:
            members = np.asarray(_cohort(spec, self.seed, self.t))
            ids = np.arange(n) if method.trains_all else members
            sampled = members if method.trains_all and spec.cohort < n else None
            if engine_rounds.stale_neighbours(spec, method):
                assert self.graph is not None
                near = [self.graph.neighbours(int(k))[0] for k in members]
                needed = np.unique(np.concatenate([members, *near]))
                # One shape for all rounds: padded by repeating the last client, whose row is then
                # simply there twice.
                width = min(n, int(len(members) * (1 + self.graph.degrees.max())))
                pool_ids = np.concatenate([needed, np.full(width - len(needed), needed[-1])])
                pool = self.store.gather(pool_ids)
            rows = self.store.gather(ids)
        self.centre, rows, log = engine_rounds.compiled_round(
            spec,
            method,
            self.channel,
            self.threat,
            self.data,
            self.coupled,
            self.seed,
            self.t,
            self.centre,
            ids,
            rows,
            sampled,
            pool_ids,
            pool,
        )
        if method.exchange != "pooled":
            self.store.scatter(ids, rows)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], log)

    def _account(self, logs: Log, count: int) -> None:
        """Bill the rounds of a block and look for clients that blew up."""
        for i in range(count):
            log = jax.tree.map(lambda leaf: leaf[i], logs)  # noqa: B023
            if not (log.finite.all() and log.finite_after.all() and log.hub_finite):
                # Those whose own work went wrong come first; only when all was well before mixing
                # do we name whom the mixing broke.
                wrong = ~log.finite if not log.finite.all() else ~log.finite_after
                bad = (
                    []
                    if self.method.exchange == "pooled"
                    else self.members[log.ids[wrong]].tolist()
                )
                broken = [str(c) for c in self.conditions() if not c.holds]
                self.t += 1
                raise Diverged(self.method.title, self.t, bad, broken)
            who, *amounts = self._bill(log)
            self.ledger.add(self.t, self.members[who], *amounts)
            self.dirty[log.ids] = self.method.exchange != "pooled"
            self.t += 1

    def _bill(self, log: Log) -> tuple[Any, Any, Any, Any]:
        """Clients, bytes up, bytes down, gradients of one round."""
        method, size = self.method, log.up.astype(np.int64)
        if method.exchange == "none":
            return log.ids, 0, 0, log.gradients
        if method.exchange == "pooled":
            # A pooled step looks at as many samples as one step of each member of a cohort.
            everyone, members = (
                np.arange(self.spec.clients),
                np.asarray(_cohort(self.spec, self.seed, self.t)),
            )
            return (
                everyone,
                self._data_bytes if self.t == 0 else 0,
                0,
                np.where(np.isin(everyone, members), log.gradients, 0),
            )
        down = log.down.astype(np.int64)
        if method.exchange == "star":
            if self.channel.down and not method.addressed:
                down = self.heard.bill(log.ids, int(down[0]), self._whole_copy)
            return log.ids, size, down, log.gradients
        if method.hub_between:
            return log.ids, size, down, log.gradients
        assert self.graph is not None
        return (
            log.ids,
            size * self.graph.degrees,
            self._adjacency @ size,
            log.gradients,
        )  # without a hub all take part

    @cached_property
    def _adjacency(self) -> Any:
        assert self.graph is not None
        return (self.graph.weights > 0).astype(np.int64)

    @cached_property
    def _whole_copy(self) -> int:
        """What it takes to bring a client up to date that has heard nothing for long."""
        return size_of(self.centre.stream.public.copy) + HEADER

    @cached_property
    def _data_bytes(self) -> NDArray[np.int64]:
        """What each client's training data takes, in the precision of the run."""
        train = self.federation.train
        return train.sizes * size_of((train.x[:1].astype(self.training.precision), train.y[:1]))

    # -- looking -----------------------------------------------------------------------------------

    def evaluate(self) -> Snapshot:
        """All clients, all views, on validation and test."""
        with self.precision():
            scores = {
                name: evaluate(
                    self.spec,
                    self.method,
                    self.channel,
                    self.data,
                    held,
                    self.seed,
                    self.t,
                    self.centre,
                    self.store,
                    self.training.eval_at_once,
                )
                for name, held in self.held.items()
            }
        if self.liars.any():  # what liars reach is nobody's concern
            scores = {
                name: Scores(*(np.where(self.liars, np.nan, a) for a in found))
                for name, found in scores.items()
            }
        if len(self.held_out):
            scores = {name: self._among_all(found, self.members) for name, found in scores.items()}
            if self.t >= self.training.rounds and len(self.everybody.test):
                scores["newcomers"] = self._among_all(self._newcomers(), self.held_out)
        return Snapshot(self.t, scores, **self.ledger.totals())

    def _newcomers(self) -> Scores:
        from coterie.engine.adapt import adapt  # it needs a simulator

        return adapt(
            self, self.everybody.subset(self.held_out), rounds=self.training.adapt_rounds
        ).scores

    def _among_all(self, scores: Scores, clients: NDArray[np.int64]) -> Scores:
        """Scores of some clients as columns of everybody's, NaN for the others."""
        wide = [np.full((a.shape[0], self.everybody.clients), np.nan) for a in scores]
        for out, found in zip(wide, scores, strict=True):
            out[:, clients] = found
        return Scores(*wide)

    def scored(self, split: str) -> NDArray[np.int64]:
        """How many samples of each client a split's scores are over; 0 for those that have none
        there.
        """
        split_of = {
            "train": self.everybody.train,
            "validation": self.everybody.validation,
            "newcomers": self.everybody.test,
        }
        sizes: NDArray[np.int64] = split_of.get(split, self.everybody.test).sizes
        there = np.isin(np.arange(len(sizes)), self.held_out)
        if split == "newcomers":
            return np.where(there, sizes, 0)
        return np.where(there | np.isin(np.arange(len(sizes)), self.members[self.liars]), 0, sizes)

    def place(self, client: int) -> int:
        """Where a client stands among those that train."""
        if not 0 <= client < self.everybody.clients:
            raise InvalidInput(
                f"client is {client}, but must be from 0 to {self.everybody.clients - 1}."
            )
        if client in self.held_out:
            raise InvalidInput(
                f"client {client} was held out of training and has no model of its own in this run;"
                " see `coterie adapt`."
            )
        return int(np.searchsorted(self.members, client))

    def models(self, client: int) -> dict[str, Vector]:
        """The models of one client, by view, as numpy arrays."""
        client = self.place(client)
        with self.precision():
            models = self._models(
                client, jax.tree.map(lambda leaf: leaf[0], self.store.gather(np.array([client])))
            )
            return {view: v.map(np.asarray) for view, v in models.items()}

    def _models(self, client: Any, row: Row) -> dict[str, Vector]:
        said = engine_rounds.speak(self.method, self.channel, self.seed, self.t, self.centre)
        heard = engine_rounds.hear(
            self.method, self.channel, self.seed, self.t, self.centre, said, client, row
        )
        objective = engine_rounds.objective_of(self.spec, self.data, self.seed, self.t, client)
        return self.method.models(heard.received, row.memory, objective)

    def all_models(self, view: str | None = None) -> Vector:
        """One view of all clients, stacked along axis 0."""
        view = view or self.method.model_views[0]
        with self.precision():
            everyone = np.arange(self.spec.clients)
            return jax.vmap(lambda client, row: self._models(client, row)[view])(
                everyone, self.store.gather(everyone)
            ).map(np.asarray)


_cohort = jax.jit(engine_rounds.round_cohort, static_argnums=(0,))


@dataclasses.dataclass
class Result:
    """What a run leaves in memory.

    Scores are accuracies (classification) or negated mean squared errors (regression).
    """

    method: Method
    federation: Federation
    training: Training
    snapshots: list[Snapshot]
    ledger: Ledger
    seconds: float
    compile_seconds: float
    simulator: Simulator = dataclasses.field(repr=False)
    collapsed: str | None = None
    collapsed_at: int | None = None

    @property
    def rounds(self) -> list[int]:
        return [s.round for s in self.snapshots]

    def curve(self, split: str = "test", view: int = 0) -> NDArray[np.float64]:
        """Mean score over clients at every evaluation."""
        return np.array([np.nanmean(s.scores[split].score[view]) for s in self.snapshots])

    def client_scores(self, split: str = "test", view: int = 0) -> NDArray[np.float64]:
        """Score of every client after the last round."""
        return self.snapshots[-1].scores[split].score[view]

    def personal(self, client: int) -> Vector:
        """The model this client predicts with."""
        return self.simulator.models(client)[self.method.model_views[0]]


Progress = Callable[[Simulator, Snapshot | None], None]


def drive(simulator: Simulator, progress: Progress | None = None) -> Iterator[Snapshot]:
    """Run to the end, giving a snapshot at every evaluation (the first before any round, unless
    resumed).
    """
    options = simulator.training
    if simulator.t == 0:
        first = simulator.evaluate()
        if progress:
            progress(simulator, first)
        yield first
    while simulator.t < options.rounds:
        target = min(options.rounds, (simulator.t // options.eval_every + 1) * options.eval_every)
        while simulator.t < target:
            simulator.advance(target - simulator.t)
            if progress:
                progress(simulator, None)
        snapshot = simulator.evaluate()
        if progress:
            progress(simulator, snapshot)
        yield snapshot


def simulate(
    method: Method | str,
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    graph: Graph | None = None,
    progress: Progress | None = None,
    keep_collapsed: bool = False,
    channel: Channel | str = PLAIN,
    attack: Attack | None = None,
    **training: Any,
) -> Result:
    """Train a method on a federation in memory.

    Further arguments are those of `Training`: rounds, cohort, batch_size, seed, …

    A run that diverges raises `Diverged`; with `keep_collapsed` it gives what there was before,
    with `collapsed` set.
    """
    options = Training.from_config(training)
    begun = time.perf_counter()
    snapshots, collapsed, collapsed_at = [], None, None
    with Compilations() as compilations:
        simulator = Simulator(
            method, federation, model, options, graph, channel=channel, attack=attack
        )
        try:
            for snapshot in drive(simulator, progress):
                snapshots.append(snapshot)
        except Diverged as error:
            if not keep_collapsed:
                raise
            collapsed, collapsed_at = str(error), error.round
    seconds = time.perf_counter() - begun
    return Result(
        simulator.method,
        federation,
        options,
        snapshots,
        simulator.ledger,
        seconds,
        compilations.seconds,
        simulator,
        collapsed,
        collapsed_at,
    )


def simulate_many(
    methods: Sequence[Method],
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    seeds: Sequence[int] = (0,),
    graph: Graph | None = None,
    channel: Channel | str = PLAIN,
    **training: Any,
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
    begun = time.perf_counter()
    with Compilations() as compilations:
        sims = [
            Simulator(
                m,
                federation,
                model,
                Training.from_config({**training, "seed": s, "store": "device"}),
                graph,
                channel=channel,
            )
            for m, s in zip(methods, seeds, strict=True)
        ]
        lead = sims[0]
        structures = {jax.tree.structure(s.method) for s in sims}
        if len(structures) > 1:
            raise InvalidInput(
                "simulate_many needs methods that differ in floats only, but some differ in their"
                " kind or in whole-number or named options."
            )
        snapshots: list[list[Snapshot]] = [[s.evaluate()] for s in sims]
        with lead.precision():
            leaves = list(zip(*(jax.tree.leaves(s.method) for s in sims), strict=True))
            same = [
                all(
                    a is b or (np.shape(a) == np.shape(b) and np.array_equal(_value(a), _value(b)))
                    for b in (leaf[0],)
                    for a in leaf
                )
                for leaf in leaves
            ]
            axes = tuple(None if alike else 0 for alike in same)
            stacked = [
                leaf[0] if alike else jnp.stack([jnp.asarray(v) for v in leaf])
                for leaf, alike in zip(leaves, same, strict=True)
            ]
            method = jax.tree.unflatten(jax.tree.structure(lead.method), stacked)
            stack = lambda trees: jax.tree.map(lambda *v: jnp.stack(v), *trees)
            centre, rows = (
                stack([s.centre for s in sims]),
                stack([s.store.rows for s in sims if isinstance(s.store, DeviceStore)]),
            )
            options = lead.training
            length, t = min(BLOCK, options.rounds), 0
            while t < options.rounds:
                target = min(options.rounds, (t // options.eval_every + 1) * options.eval_every)
                step = min(target - t, length)
                centre, rows, logs = engine_rounds.compiled_mapped_block(
                    lead.spec,
                    length,
                    axes,
                    method,
                    lead.channel,
                    lead.data,
                    lead.coupled,
                    jnp.asarray(seeds),
                    centre,
                    rows,
                    t,
                    step,
                )
                logs = jax.tree.map(np.asarray, logs)
                for i, s in enumerate(sims):
                    s.centre = jax.tree.map(lambda leaf: leaf[i], centre)  # noqa: B023
                    assert isinstance(s.store, DeviceStore)
                    s.store.rows = jax.tree.map(lambda leaf: leaf[i], rows)  # noqa: B023
                    s._account(jax.tree.map(lambda leaf: leaf[i], logs), step)  # noqa: B023
                t += step
                if t == target:
                    for kept, s in zip(snapshots, sims, strict=True):
                        kept.append(s.evaluate())
    seconds = time.perf_counter() - begun
    return [
        Result(
            s.method,
            federation,
            s.training,
            kept,
            s.ledger,
            seconds / count,
            compilations.seconds / count,
            s,
        )
        for s, kept in zip(sims, snapshots, strict=True)
    ]


def _value(leaf: Any) -> Any:
    return (
        jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else np.asarray(leaf)
    )
