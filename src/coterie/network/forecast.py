"""How long would these rounds take on real machines?

The time is worked out from the byte bill (round, client, up, down, gradients), round by round, for
all clients at once; nothing is trained again.

Star: the hub asks; every client receives, works and answers; the hub takes the answers one after
the other. A round ends with the slowest. Peers: a peer begins a round when the messages of all its
neighbours for the round before have come; nobody waits for anybody else.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pyarrow.parquet as pq

from coterie.core import randomness
from coterie.core.errors import InvalidInput
from coterie.core.ledger import COLUMNS
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.engine.exchange import exchange_of
from coterie.engine.simulate import Result
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.network.options import Array, LinkSpeeds, Network
from coterie.network.tcp import Wires

if TYPE_CHECKING:
    from coterie.runs.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class Forecast:
    """When each round ends: `seconds[i]` after the beginning, for round `rounds[i]`."""

    rounds: Array
    seconds: Array

    @property
    def total(self) -> float:
        return float(self.seconds[-1]) if len(self.seconds) else 0.0

    @property
    def per_round(self) -> float:
        """The median time of a round."""
        return float(np.median(np.diff(self.seconds, prepend=0.0))) if len(self.seconds) else 0.0

    def after(self, rounds: Any) -> Array:
        """Seconds until so many rounds are over (0 rounds: 0)."""
        index = np.searchsorted(
            self.rounds, np.asarray(rounds)
        )  # rounds are counted from 0, so `rounds` of them end before number `rounds`
        return np.concatenate([[0.0], self.seconds])[index]

    def to_target(self, rounds: Any, scores: Any, target: float) -> float | None:
        """Seconds until the scores, measured after these rounds, first reach the target; None:
        never.
        """
        reached = np.flatnonzero(np.asarray(scores) >= target)
        return float(self.after(np.asarray(rounds)[reached[0]])) if len(reached) else None


def _by_round(rows: Array) -> list[tuple[int, Array]]:
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    rounds, starts = np.unique(rows[:, 0], return_index=True)
    return [(int(t), part) for t, part in zip(rounds, np.split(rows, starts[1:]), strict=True)]


def star_time(
    network: Network, rows: Array, links: LinkSpeeds, *, seed: int = 0, cohort: int | None = None
) -> Forecast:
    """Rounds around a hub, from the byte bill.

    `cohort`: clients sampled per round (nothing: all).
    """
    clients, costs = len(links.latency), network.costs
    ends, now = [], 0.0
    wires = Wires(network, clients), Wires(network, clients)
    for t, part in _by_round(rows):
        members = sampled(seed, t, clients, cohort) if network.drop_out else part[:, 1].astype(int)
        taken = _star_round(network, part, links, wires, t=t, seed=seed, cohort=members, start=now)
        now = taken + costs.round_seconds
        ends.append((t, now))
    return _forecast(ends)


def _star_round(
    network: Network,
    part: Array,
    links: LinkSpeeds,
    wires: tuple[Wires, Wires],
    *,
    t: int,
    seed: int,
    cohort: Array,
    start: float,
) -> float:
    """When the hub, which asks at `start`, has taken the last answer. `part`: the round's bill."""
    who, up, down, gradients = part[:, 1].astype(int), *part[:, 2:5].T.astype(float)
    clients, costs = len(links.latency), network.costs
    away, missing = network.away(seed, t, clients), network.missing(seed, t, cohort, clients)
    waited = start + (network.patience if missing[cohort].any() else 0.0)
    there = ~missing[who]
    who, up, down, gradients = who[there], up[there], down[there], gradients[there]
    if not len(who):
        return waited
    latency, share = links.latency[who], max(1, len(who))
    jitter = network.jitters(seed, t, (2, clients))[:, who]
    to_client = np.minimum(links.down[who], (network.hub_up or np.inf) / share)
    to_hub = np.minimum(links.up[who], (network.hub_down or np.inf) / share)
    begun = np.full(len(who), start)
    asked = begun + wires[0].carry(who, begun, down, to_client, latency) + jitter[0]
    done = (
        asked
        + gradients * links.gradient[who]
        + costs.work_seconds
        + network.drop_seconds * away[who]
    )
    arrive = done + wires[1].carry(who, done, up, to_hub, latency) + jitter[1]
    # The hub takes answers one after the other: the last of those that came i-th or later cannot be
    # done before they are all taken.
    taken = np.sort(arrive) + costs.message_seconds * np.arange(len(who), 0, -1)
    return max(waited, float(taken.max()))


def peer_time(
    network: Network, rows: Array, links: LinkSpeeds, graph: Graph, *, seed: int = 0
) -> Forecast:
    """Rounds among neighbours, from the byte bill: a recursion over the edges of the graph.

    The clients of the bill, in order, are the graph's.
    """
    clients, costs = len(links.latency), network.costs
    members = np.unique(rows[:, 1]).astype(int)
    if len(members) != graph.clients:
        raise InvalidInput(
            f"the bill has {len(members)} clients, but the graph has {graph.clients}."
        )
    degree = np.maximum(graph.degrees, 1)
    to, start = np.repeat(np.arange(graph.clients), graph.degrees), graph.weights.indptr[:-1]
    source = graph.weights.indices
    own = LinkSpeeds(*(a[members] for a in links))
    latency = (own.latency[source] + own.latency[to]) / 2
    bandwidth = np.minimum(own.up[source] / degree[source], own.down[to] / degree[to])
    social = graph.degrees > 0
    ready, ends = np.zeros(graph.clients), []
    wires, edges = Wires(network, len(source)), np.arange(len(source))
    for t, part in _by_round(rows):
        part = part[np.argsort(part[:, 1])]
        up, gradients = part[:, 2].astype(float), part[:, 4].astype(float)
        away = network.away(seed, t, clients)[members]
        sent = ready + gradients * own.gradient + costs.work_seconds + network.drop_seconds * away
        taking = wires.carry(
            edges, sent[source], (up / degree)[source], bandwidth, latency
        ) + network.jitters(seed, t, (len(source),))
        came = sent[source] + taking
        if network.changes_training:
            came = np.where(away[source], np.minimum(came, sent[to] + network.patience), came)
        last = sent.copy()
        if len(source):
            last[social] = np.maximum(sent[social], np.maximum.reduceat(came, start[social]))
        ready = last + costs.message_seconds * graph.degrees + costs.round_seconds
        ends.append((t, float(ready.max())))
    return _forecast(ends)


def alone_time(network: Network, rows: Array, links: LinkSpeeds) -> Forecast:
    """Clients that exchange nothing: each at its own pace; a round is over when the last has done
    it.
    """
    spent, ends = np.zeros(len(links.latency)), []
    for t, part in _by_round(rows):
        who = part[:, 1].astype(int)
        spent[who] += part[:, 4] * links.gradient[who] + network.costs.work_seconds
        ends.append((t, float(spent.max())))
    return _forecast(ends)


def _forecast(ends: list[tuple[int, float]]) -> Forecast:
    return Forecast(np.array([t for t, _ in ends], np.int64), np.array([s for _, s in ends], float))


_sampled = jax.jit(
    lambda seed, t, n, s: randomness.cohort(
        randomness.role_key(seed, randomness.Role.COHORT), t, n, s
    ),
    static_argnums=(3,),
)


def sampled(seed: int, t: int, clients: int, cohort: int | None) -> Array:
    """The clients that round t is meant for."""
    return (
        np.arange(clients)
        if cohort is None or cohort >= clients
        else np.asarray(_sampled(seed, t, clients, cohort))
    )


def forecast(
    network: Network,
    rows: Array,
    method: Method,
    clients: int,
    *,
    graph: Graph | None = None,
    seed: int = 0,
    cohort: int | None = None,
    links: LinkSpeeds | None = None,
) -> Forecast:
    """When each round of a bill ends, on this network.

    `links` may be given by hand instead of drawn.
    """
    links = network.links(clients) if links is None else links
    if any(np.shape(a) != (clients,) for a in links):
        raise InvalidInput(f"the links must have one number for each of {clients} clients.")
    rows = np.asarray(rows).reshape(-1, len(COLUMNS))
    exchange = exchange_of(method)
    if exchange.kind == "alone":
        return alone_time(network, rows, links)
    if isinstance(method, GraphMethod) and not method.hub_between:
        if graph is None:
            raise InvalidInput(
                f"the time of {method.name} depends on who neighbours whom; give the graph."
            )
        return peer_time(network, rows, links, graph, seed=seed)
    if exchange.pooled:  # the hub does all gradients, one after the other, once it has the data
        first, rest = rows[rows[:, 0] == rows[:, 0].min(initial=0)].copy(), _by_round(rows)
        first[:, 4] = 0
        moved = star_time(network, first, links, seed=seed).total
        spent = np.cumsum([part[:, 4].sum() * network.gradient_seconds for _, part in rest])
        return Forecast(np.array([t for t, _ in rest], np.int64), moved + spent)
    return star_time(network, rows, links, seed=seed, cohort=cohort)


def forecast_result(network: Network, result: Result, links: LinkSpeeds | None = None) -> Forecast:
    """Of a run in memory.

    >>> import coterie
    >>> digits = coterie.load("digits", clients=4)
    >>> method = coterie.FedU(local_steps=2)
    >>> result = coterie.simulate(method, digits, "mlr", rounds=2, eval_every=2)
    >>> slow, fast = (forecast_result(Network(up=up), result).total for up in (1e4, 1e6))
    >>> slow > fast
    True
    """
    sim = result.simulator
    return forecast(
        network,
        result.ledger.rows(),
        sim.method,
        sim.everybody.clients,
        graph=sim.graph,
        seed=sim.seed,
        cohort=sim.spec.cohort,
        links=links,
    )


def forecast_experiment(
    network: Network, experiment: Experiment, folder: Path, links: LinkSpeeds | None = None
) -> Forecast:
    """Of an experiment's finished run in a folder, on any network: nothing is trained again."""
    federation, method, training = experiment.federation(), experiment.method, experiment.training
    graph = None
    if isinstance(method, GraphMethod) and not method.hub_between:
        built = experiment.graph.build(federation)
        if isinstance(built, GraphRule):
            raise InvalidInput(
                'graph.kind is "learn", but the time of peers is forecast for a graph that is given'
                " beforehand."
            )
        graph = built.subset(training.hold_out(federation)[0]) if training.held_out else built
    return forecast(
        network,
        read_ledger(folder),
        method,
        federation.clients,
        graph=graph,
        seed=training.seed,
        cohort=training.cohort_size(federation),
        links=links,
    )


def read_ledger(folder: Path) -> Array:
    """The bill of a run folder."""
    try:
        table = pq.read_table(folder / "ledger.parquet")
    except OSError as error:
        raise InvalidInput(f"{str(folder)!r} has no readable ledger.parquet: {error}.") from None
    return np.stack([table.column(name).to_numpy() for name in COLUMNS], axis=1)
