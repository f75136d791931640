"""The vectorised simulator: all clients of a federation on one machine, whole blocks of rounds
compiled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack
from coterie.channel import PLAIN, Channel
from coterie.core import crew
from coterie.core.errors import Diverged
from coterie.core.ledger import BroadcastAccount, Ledger
from coterie.core.metrics import metric_of
from coterie.core.options import check_rounds
from coterie.core.randomness import Role, role_key
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation
from coterie.engine import budget, prepare
from coterie.engine.accounts import accounts_of
from coterie.engine.arguments import (
    as_attack,
    as_channel,
    as_federation,
    as_graph,
    as_method,
    as_model,
    as_training,
    check_training,
)
from coterie.engine.check import check
from coterie.engine.common import Common
from coterie.engine.edges import Edges
from coterie.engine.evaluate import Looked, Scores, evaluate
from coterie.engine.exchange import exchange_of
from coterie.engine.exchange.base import Accounts
from coterie.engine.kinship import Kinship
from coterie.engine.mesh import put, put_constants
from coterie.engine.pace import pace_of, paced, ready
from coterie.engine.roll import Absent, Roll
from coterie.engine.rounds import blown_up, compiled_block, compiled_round, of_everybody
from coterie.engine.setting import ClientState, Log, Round, Setting, State, Who
from coterie.engine.snapshot import Saved, Snapshot, restore, saved
from coterie.engine.store import DeviceStore, Store, make_store
from coterie.engine.taking_part import Cohorts, next_ids, once, who_of
from coterie.engine.training import Training
from coterie.engine.unseen import Unseen, puts_off
from coterie.methods.base import Condition, Method, PooledMethod
from coterie.methods.conditions import step_conditions
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod
from coterie.models.base import Model, ModelSpec
from coterie.models.build import build_model

BLOCK = 50
"""Rounds that one call of the compiled program may run at most."""


class Simulator:
    """A method on a federation: `advance` runs rounds, `evaluate` looks at all clients.

    `simulate` and `run` drive it. `absent` says who drops out of a round: rounds then go on without
    these clients, as a deployed hub does; they neither work nor hear nor send. `like` is a
    simulator of the same federation and graph, whose data on the device it shares.
    """

    def __init__(
        self,
        method: Method | str,
        federation: Federation,
        model: Model | ModelSpec | str,
        training: Training,
        graph: Graph | GraphRule | None = None,
        *,
        folder: Path | None = None,
        channel: Channel | str = PLAIN,
        attack: Attack | None = None,
        absent: Absent | None = None,
        like: Simulator | None = None,
    ) -> None:
        asked, federation, model = as_method(method), as_federation(federation), as_model(model)
        training, graph, attack = as_training(training), as_graph(graph), as_attack(attack)
        channel = as_channel(channel)
        check_training(training, federation)
        self.training, self.everybody, self.attack = training, federation, attack
        self.metric = metric_of(training.metric, federation.task)
        self.roll = Roll.call(federation, training)
        self.members, self.held_out = self.roll.members, self.roll.held_out
        self.seen = training.evaluated(len(self.members))
        self.federation = federation
        if len(self.held_out):
            self.federation = federation.subset(self.members)
            if isinstance(graph, Graph):
                graph = graph.check_size(federation.clients).subset(self.members)
        self.model = asked.modelled(build_model(model, federation.shape), self.federation.shape)
        self.seed = training.seed
        self.exchange = exchange_of(asked)
        self.pooled = isinstance(asked, PooledMethod)
        n = self.federation.clients
        cohort = training.cohort_size(self.federation)
        costs = budget.Run(self.model.parameters(), training.rounds, cohort / n, n, graph)
        asked, channel = budget.settle(asked, channel, costs)
        check(asked, channel, cohort, n)
        check_rounds(asked, training.rounds)
        peers = isinstance(asked, GraphMethod) and not asked.hub_between
        self.absent = absent if self.exchange.sends and not peers else None
        self.graph: Graph | None = None
        self.kinship: Kinship | None = None
        alone = graph.after if isinstance(graph, GraphRule) else 0
        self.pace = pace_of(asked, training.rounds, alone if isinstance(asked, GraphMethod) else 0)
        if asked.couples:
            self.graph = prepare.graph_for(asked, graph, n)
        edges = prepare.edges_of(asked, channel, self.graph, training.seed, graph)
        with self.precision():
            if like is not None:
                self.there: prepare.OnDevice = like.there
            else:
                mesh = prepare.spread_over(asked, self.model, self.federation, training, cohort)
                kept = prepare.rows_kept(asked, training, cohort, n, graph, mesh=mesh)
                self.there = prepare.on_device(self.federation, training, self.graph, mesh, kept)
            self._prepare(asked, channel, cohort, folder, edges)
            if isinstance(graph, GraphRule) and self.graph is not None:
                self.kinship = Kinship(graph, self)
                self.kinship.use(self, self.graph, talks=False)

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        with jax.enable_x64(self.training.precision == "float64"):
            yield

    def _prepare(
        self, asked: Method, channel: Channel, cohort: int, folder: Path | None, edges: Edges | None
    ) -> None:
        fed, options = self.federation, self.training
        dtype = jnp.dtype(options.precision)
        first = self.model.vector(role_key(self.seed, Role.INIT), fed.input_shape)
        self.template = first.map(lambda leaf: leaf.astype(dtype))
        method = asked.bind(self.template, role_key(self.seed, Role.PROJECTION), fed.shape)
        mesh = self.there.mesh
        method = put_constants(mesh, paced(prepare.tied(method, self.graph, dtype), self.pace))
        off = puts_off(method, cohort, fed.clients, self.there.rows, self.absent)
        self.spec = prepare.spec_of(method, self.model, fed, options, cohort, mesh=mesh, later=off)
        self.malicious = prepare.malicious(self.attack, fed, self.seed)
        l2 = jnp.asarray(self.model.l2, dtype)
        data = prepare.data_of(self.there.train, l2, options.batch_schedule, pooled=self.pooled)
        threat, lying = prepare.threat(self.attack, self.malicious, fed, self.seed)
        data = data._replace(held=prepare.held_for(method, self.there))
        data, self.supply = prepare.supplied(self.there, data, lying, self.spec, self.graph, edges)
        self.cohorts = Cohorts(self.spec, self.seed)
        self.setting = Setting(method, channel, threat, data, self.there.graph, self.seed)
        self.splits, self.t = self.there.splits, 0
        now = self.now()
        self.hub_state = put(mesh, self.exchange.open_hub(now, self.template))
        row = self.exchange.open_client(now, self.hub_state, self.template)
        path = None if folder is None else folder / "store.scratch"
        self.kept = make_store(options.store, fed.clients, row, path, mesh)
        self.unseen = Unseen()
        self.setting = self.supply.begin(self.setting)
        self.ledger = Ledger(fed.clients)
        self.unsent = 0
        """Messages of malicious clients that were not finite, and counted as not sent."""
        self.dirty, self.touched = np.zeros((2, fed.clients), bool)
        """Who trained since the last checkpoint, and who ever did."""
        self.broadcasts = BroadcastAccount(fed.clients)
        self._seconds_per_round = 0.0

    def now(self, ids: NDArray[Any] | None = None) -> Round:
        """The setting in the round that comes next; with the data of some clients, at least."""
        setting = self.setting if ids is None else self.supply.setting(self.setting, ids)
        if ids is not None:
            setting = setting._replace(data=jax.tree.map(jnp.asarray, setting.data))
        return Round(self.spec, setting, self.t)

    @property
    def method(self) -> Any:
        return self.setting.method

    @property
    def channel(self) -> Channel:
        return self.setting.channel

    @property
    def hub(self) -> Any:
        """What the method keeps at its hub."""
        return self.hub_state.method_state

    @property
    def store(self) -> Store:
        """The clients' states, for whoever looks at them."""
        self.unseen.catch_up(self)
        return self.kept

    def conditions(self) -> list[Condition]:
        """The step-size conditions of the method on this problem."""
        norm = self.graph.laplacian_norm if self.graph is not None else 0.0
        with self.precision():
            return step_conditions(self.method, self.template, norm, self.training.rounds)

    # -- rounds ------------------------------------------------------------------------------------

    def cohort(self, t: int) -> NDArray[Any]:
        """The clients sampled in round t, sorted."""
        return self.cohorts.of(t)

    def advance(self, rounds: int) -> int:
        """Run up to `rounds` rounds, as many as fit in about a second; returns how many.

        Raises Diverged.
        """
        with self.precision():
            if self.kinship is not None:
                rounds = self.kinship.before(self, rounds)
            idle, rounds = ready(self.pace, self.t, rounds)
            if idle:
                self.t += idle
                return idle
            gone = self._gone()
            if not self.kept.blocks or gone is not None or self.supply.edges is not None:
                self._account(self._round(gone), 1)
                return 1
            if self.absent is not None:
                rounds = 1
            fit = max(1, int(1.0 / self._seconds_per_round)) if self._seconds_per_round else 1
            count, begun = crew.agreed(min(rounds, BLOCK, fit)), time.perf_counter()
            logs = self._block(count)
            spent = (time.perf_counter() - begun) / count
            self._seconds_per_round = spent if self.t else 0.0  # the first call compiles
            unsent = self._first_unsent(logs, count)
            if unsent is None:
                self._account(logs, count)
                return count
            self._account(logs, unsent)
            self._account(self._round(None), 1)
        return unsent + 1

    def _first_unsent(self, logs: Log, count: int) -> int | None:
        """Star under attack: the first round of a block with a message that is not finite."""
        if self.setting.threat is None or not isinstance(self.method, StarMethod):
            return None
        found = np.flatnonzero(logs.unsent[:count].any(1))
        return int(found[0]) if len(found) else None

    def _block(self, count: int) -> Log:
        assert isinstance(self.kept, DeviceStore)
        length = min(BLOCK, self.training.rounds)
        state = State(self.hub_state, self.kept.rows)
        state, logs = compiled_block(
            spec=self.spec, length=length, setting=self.setting, state=state, t0=self.t, count=count
        )
        self.hub_state, self.kept.rows = state.hub, state.rows
        self.unseen.put_off(state.before, self.t + count - 1)
        return jax.tree.map(np.asarray, logs)

    def _gone(self) -> NDArray[np.bool_] | None:
        """Who of those that would train drops out of this round; None: nobody."""
        if self.absent is None:
            return None
        at, all_train = (self.seed, self.t), self.method.trains_all
        return self.roll.dropped(self.absent, at, self.cohort(self.t), all_train=all_train)

    def _round(self, gone: NDArray[np.bool_] | None) -> Log:
        """One round on the rows that it needs, and no others."""
        if self.pooled:
            who, rows, setting = Who(np.zeros(1, np.int32)), ClientState(()), self.setting
        else:
            who = who_of(self, gone)
            rows = self.kept.gather(who.ids)
            setting = self.supply.setting(self.setting, who.ids, self.t)
        others = None if who.pool is None else self.kept.gather(who.pool)
        before = State(self.hub_state, rows, others)
        state, log = compiled_round(self.spec, setting, before, who, self.t)
        if (ids := next_ids(self)) is not None:  # while this round is computed
            self.supply.prefetch(ids)
            self.kept.prefetch(ids)
        unsent = np.asarray(log.unsent)
        if unsent.any() and isinstance(self.method, StarMethod):
            sent = ~unsent if who.senders is None else ~unsent[who.senders]
            who = who._replace(counted=np.flatnonzero(sent))
            state, log = compiled_round(self.spec, setting, before, who, self.t)
            log = log._replace(unsent=unsent)
        self.hub_state = state.hub
        if self.spec.unseen:
            self.unseen.put_off(before.hub, self.t)
        del before, rows, others  # states may be large
        if not self.pooled:
            trained, rows, log = once(who, state.rows, log)
            self.kept.scatter(trained, rows)
        sizes = self.federation.train.sizes
        log = of_everybody(self.now(), log, sizes) if self.spec.unseen else log
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], log)

    def _account(self, logs: Log, count: int) -> None:
        """Bill the rounds of a block and look for clients that blew up."""
        for i in range(count):
            log: Log = jax.tree.map(lambda leaf: leaf[i], logs)  # noqa: B023
            if (wrong := blown_up(log)) is not None:
                bad = [] if self.pooled else self.members[log.ids[wrong]].tolist()
                broken = [str(c) for c in self.conditions() if not c.holds]
                self.t += 1
                raise Diverged(self.method.title, self.t, bad, broken)
            bill = self.exchange.bill(log, self.t, self.accounts, self.method)
            who = self.members[bill.clients]
            self.ledger.add(self.t, who, bill.up, bill.down, bill.gradients)
            self.unsent += int(log.unsent.sum())
            self.dirty[log.ids] = not self.pooled
            self.touched[log.ids] |= not self.pooled
            if self.kinship is not None:
                self.kinship.worked(self, log.ids)
            self.t += 1

    @cached_property
    def accounts(self) -> Accounts:
        """What bills need to know."""
        return accounts_of(self)

    def forget_accounts(self) -> None:
        """The graph has changed."""
        self.__dict__.pop("accounts", None)

    # -- going on ----------------------------------------------------------------------------------

    def changed(self) -> NDArray[np.int64]:
        """The clients whose state was changed since `state` gave it."""
        return np.flatnonzero(self.dirty)

    def state(self, clients: NDArray[np.int64]) -> Saved:
        """All that is needed to go on from here; of the clients only those that are given."""
        return saved(self, clients)

    def restore(self, saved: Saved) -> None:
        """Go on from there; on a simulator that has not run yet."""
        restore(self, saved)

    # -- looking -----------------------------------------------------------------------------------

    def evaluate(self) -> Snapshot:
        """All clients (or a fixed sample), all views, on validation and test. Raises Diverged."""
        self.unseen.check(self)
        here, most = (self.now(), self.hub_state, self.store), self.training.eval_at_once
        seen = None if self.seen is None else np.flatnonzero(self.seen)
        how = Looked(most, self.metric, self.supply, seen)
        with self.precision():
            score = lambda held: evaluate(*here, held, how)
            scores = {name: score(held) for name, held in self.splits.items()}
        if self.malicious.any():  # what malicious clients reach is nobody's concern
            blank = lambda found: Scores(*(np.where(self.malicious, np.nan, a) for a in found))
            scores = {name: blank(found) for name, found in scores.items()}
        if len(self.held_out):
            scores = {name: self.roll.among_all(s, self.members) for name, s in scores.items()}
            ended = self.training.plain and self.t >= self.training.rounds
            if ended and len(self.everybody.test):
                scores["newcomers"] = self.newcomers()
        return Snapshot(self.t, scores, **self.ledger.totals())

    def newcomers(self) -> Scores:
        """What held-out clients reach when they adapt from here."""
        from coterie.engine.adapt import adapt  # it needs a simulator

        out = self.everybody.subset(self.held_out)
        found = adapt(self, out, rounds=self.training.adapt_rounds).scores
        return self.roll.among_all(found, self.held_out)

    def scored(self, split: str) -> NDArray[np.int64]:
        """How many samples of each client a split's scores are over; 0: it has none there."""
        return self.roll.scored(split, self.malicious, self.seen)

    def models(self, client: int) -> dict[str, Vector]:
        """The models of one client, by view, as numpy arrays."""
        client = self.roll.index_of(client)
        with self.precision():
            rows = self.store.gather(np.array([client]))
            models = self._models(
                self.now(np.array([client])), client, jax.tree.map(lambda leaf: leaf[0], rows)
            )
            return {view: v.map(np.asarray) for view, v in models.items()}

    def _models(self, now: Round, client: Any, row: ClientState) -> dict[str, Vector]:
        return Common.of(now, self.hub_state).models(self.spec, client, row)

    def all_models(self, view: str | None = None) -> Vector:
        """One view of all clients, stacked along axis 0."""
        view = view or self.method.model_views[0]
        with self.precision():
            everyone = np.arange(self.spec.clients)
            now = self.now(everyone)
            one = jax.vmap(lambda client, row: self._models(now, client, row)[view])
            return one(everyone, self.store.gather(everyone)).map(np.asarray)
