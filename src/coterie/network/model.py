"""A network around the simulator: how long would these rounds take on real machines, and what if
some of them drop out?

    [network]
    engine = "zenoh"
    latency = 0.04           # seconds, one way
    up = 125e3               # bytes per second; 1 Mbit/s = 125e3
    down = 1.25e6
    gradient_seconds = 2e-3

The time is worked out from the byte bill (round, client, up, down, gradients), round by round, for
all clients at once; nothing is trained again.

Star: the hub asks; every client receives, works and answers; the hub takes the answers one after
the other. A round ends with the slowest. Peers: a peer begins a round when the messages of all its
neighbours for the round before have come; nobody waits for anybody else.

A message of b bytes takes latency + b / bandwidth, and what TCP waits for acknowledgements while
its window is smaller than the message (`Wires`). Links differ from client to client by `spread`,
drawn once by the network's own seed; drop-outs and jitter by the run's seed and the round: the same
for every method.
"""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coterie.core import randomness
from coterie.core.errors import InvalidInput
from coterie.core.ledger import COLUMNS
from coterie.core.options import Options, option, traced_dataclass
from coterie.coupling.graph import Graph
from coterie.engine.exchange import exchange_of
from coterie.engine.setting import ClientState, Round
from coterie.engine.simulate import Result
from coterie.engine.simulator import Absent, Simulator
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod

Array = NDArray[Any]
WINDOW = 14_600.0
"""Bytes that TCP sends before the first acknowledgement: ten segments (RFC 6928)."""
TIMEOUT = 0.2
"""Seconds over a round trip after which a sender's silence halves its window, and again after as
long (RFC 2861; Linux' shortest retransmission timeout). Reno and CUBIC, not BBR.
"""


class Costs(NamedTuple):
    """What an engine costs beside bytes and gradients."""

    work_seconds: float
    message_seconds: float
    round_seconds: float
    framing: float
    envelope: int


ENGINES = {
    "zenoh": Costs(
        work_seconds=0.02, message_seconds=0.003, round_seconds=0.02, framing=1.05, envelope=500
    ),
    "flower": Costs(
        work_seconds=1.4, message_seconds=0.02, round_seconds=0.5, framing=1.05, envelope=2000
    ),
}
"""Rough.

Flower: about 2 s a round were seen on loopback (`coterie deploy-demo`, 3 clients), most of it
waiting for the next look; how they split is assumed. Plain Flower, a process per message, takes 7
s. Zenoh: as bench/network.py measured it on two cores with little else to do, messages of 38 kB.
`framing` was measured too (bytes of the device over the payload's).
"""


@traced_dataclass
class Network(Options):
    """The network and machines that a deployment would have."""

    name: ClassVar[str] = "network"

    engine: str = option("zenoh", "whose overheads count", choices=tuple(ENGINES))
    latency: float = option(
        0.02,
        "seconds, one way, between a client and the hub, or between two peers",
        low=0,
        static=True,
    )
    jitter: float = option(
        0.0, "mean of the random seconds that come on top for every message", low=0, static=True
    )
    up: float | None = option(
        None,
        "bytes per second that a client can send; nothing: without limit",
        above=0,
        static=True,
    )
    down: float | None = option(
        None,
        "bytes per second that a client can receive; nothing: without limit",
        above=0,
        static=True,
    )
    hub_up: float | None = option(
        None,
        "bytes per second that the hub can send, shared by those it talks to",
        above=0,
        static=True,
    )
    hub_down: float | None = option(
        None, "bytes per second that the hub can receive, shared likewise", above=0, static=True
    )
    gradient_seconds: float = option(
        1e-3, "of one mini-batch gradient on a client", low=0, static=True
    )
    spread: float = option(
        0.0,
        "how clients' latencies and bandwidths differ: standard deviation of their logarithms",
        low=0,
        high=5,
        static=True,
    )
    speed_spread: float = option(
        0.0, "the same for the time of a gradient", low=0, high=5, static=True
    )
    seed: int = option(0, "of the spread", low=0)
    drop_out: float = option(
        0.0, "probability that a client drops out in a round", low=0, high=1, static=True
    )
    drop_seconds: float = option(60.0, "how long a drop-out lasts", low=0, static=True)
    on_missing: str = option(
        "wait",
        "when somebody drops out: wait for them, or go on without their message",
        choices=("wait", "go-on"),
    )
    patience: float = option(
        60.0, 'seconds before a round goes on without somebody, with "go-on"', low=0, static=True
    )
    at_least: float = option(
        0.5, 'the share of a cohort that must answer, with "go-on"', above=0, high=1, static=True
    )
    work_seconds: float | None = option(
        None,
        "of a client per round beside its gradients; nothing: the engine's, which is rough",
        low=0,
        static=True,
    )
    message_seconds: float | None = option(
        None,
        "of a hub (or peer) per message that it takes in; nothing: the engine's",
        low=0,
        static=True,
    )
    round_seconds: float | None = option(
        None, "of a hub (or peer) per round; nothing: the engine's", low=0, static=True
    )
    slow_start: bool = option(
        True, "whether TCP's window begins small, and shrinks while there is nothing to send"
    )

    @property
    def costs(self) -> Costs:
        """The engine's, where nothing else is given."""
        given = {
            key: value
            for key in ("work_seconds", "message_seconds", "round_seconds")
            if (value := getattr(self, key)) is not None
        }
        return ENGINES[self.engine]._replace(**given)

    @property
    def changes_training(self) -> bool:
        """True when messages get lost for good, so that rounds go on without them."""
        return (
            self.on_missing == "go-on" and self.drop_out > 0 and self.drop_seconds >= self.patience
        )

    def links(self, clients: int) -> Links:
        """The links of all clients, each with its own factors."""

        def factors(number: int, sigma: float) -> Array:
            return np.exp(
                sigma * np.random.default_rng([self.seed, 0x11EC, number]).standard_normal(clients)
            )

        far, up, down, slow = (
            factors(i, s)
            for i, s in enumerate((self.spread, self.spread, self.spread, self.speed_spread))
        )
        limit = lambda value: np.inf if value is None else value
        return Links(
            self.latency * far,
            limit(self.up) * up,
            limit(self.down) * down,
            self.gradient_seconds * slow,
        )

    def away(self, seed: int, t: int, clients: int) -> NDArray[np.bool_]:
        """Who drops out in round t. A larger probability takes those of a smaller one and more."""
        if self.drop_out == 0:
            return np.zeros(clients, bool)
        return np.random.default_rng([seed, 0xA3A7, t]).random(clients) < self.drop_out

    def missing(self, seed: int, t: int, cohort: Array, clients: int) -> NDArray[np.bool_]:
        """Whom of all clients round t goes on without; nobody when too few of the cohort would be
        left.
        """
        gone = self.away(seed, t, clients)
        if not self.changes_training or (~gone[cohort]).sum() < max(
            1.0, self.at_least * len(cohort)
        ):
            return np.zeros(clients, bool)
        return gone

    def absent(self, clients: int) -> Absent | None:
        """Who drops out of training, for a simulator with so many clients; None: nobody ever."""
        if not self.changes_training:
            return None
        return lambda seed, t, cohort: self.missing(seed, t, cohort, clients)

    def _jitters(self, seed: int, t: int, shape: tuple[int, ...]) -> Array:
        return (
            np.random.default_rng([seed, 0x71E7, t]).exponential(self.jitter, shape)
            if self.jitter
            else np.zeros(shape)
        )


class Links(NamedTuple):
    """One number per client: seconds one way, bytes per second each way (inf: without limit),
    seconds per gradient. May be made by hand.
    """

    latency: Array
    up: Array
    down: Array
    gradient: Array


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
        place = np.searchsorted(
            self.rounds, np.asarray(rounds)
        )  # rounds are counted from 0, so `rounds` of them end before number `rounds`
        return np.concatenate([[0.0], self.seconds])[place]

    def to_target(self, rounds: Any, scores: Any, target: float) -> float | None:
        """Seconds until the scores, measured after these rounds, first reach the target; None:
        never.
        """
        reached = np.flatnonzero(np.asarray(scores) >= target)
        return float(self.after(np.asarray(rounds)[reached[0]])) if len(reached) else None


def stalls(size: Array, bandwidth: Array, trip: Array, window: Any = WINDOW) -> Array:
    """Seconds that TCP waits for acknowledgements while its window doubles, for messages of `size`
    bytes over round trips of `trip`.

    A window of 2^i · `window` takes its time on the wire; the sender idles for the rest of the
    round trip, until a window fills it or all is sent.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(np.isinf(bandwidth), 0.0, window / bandwidth)
        filled = np.where(
            first > 0, np.floor(np.log2(1 + trip / np.where(first > 0, first, 1.0))) + 1, np.inf
        )  # as many windows leave a gap
        windows = np.ceil(np.log2(size / window + 1) - 1e-9)
        gaps = np.clip(np.minimum(filled, windows - 1), 0, None)
    return np.asarray(np.clip(gaps * (trip + first) - (2.0**gaps - 1) * first, 0, None))


class Wires:
    """One direction of so many connections: how far TCP trusts each, and when it last put something
    on it.

    A window begins at ten segments, grows by what is acknowledged while messages fill it (slow
    start, to twice the largest flight at most), and is halved for every timeout that its sender was
    silent, counted from the last byte that it sent.
    """

    def __init__(self, network: Network, count: int) -> None:
        self.network = network
        self.window, self.last = np.full(count, WINDOW), np.full(count, -np.inf)

    def carry(
        self, which: Array, start: Array, size: Array, bandwidth: Array, latency: Array
    ) -> Array:
        """Seconds from end to end for messages of `size` payload bytes that are sent at `start` on
        connections `which`.
        """
        network, trip = self.network, 2 * latency
        on_wire = size * network.costs.framing + network.costs.envelope
        if not network.slow_start:
            return np.asarray(latency + on_wire / bandwidth)
        timeout = (
            TIMEOUT + trip + on_wire / bandwidth
            # acknowledgements come later the more of its own bytes are queued before the narrowest
            # link
        )
        halvings = np.minimum(np.floor(np.maximum(start - self.last[which], 0) / timeout), 60)
        window = np.maximum(
            np.minimum(WINDOW, self.window[which]), self.window[which] / 2.0**halvings
        )
        waits = stalls(on_wire, bandwidth, trip, window)
        flights = np.maximum(np.ceil(np.log2(on_wire / window + 1) - 1e-9), 1)
        # The last flight holds what is left, the one before it 2^(flights − 2) windows.
        largest = np.maximum(
            on_wire - (2.0 ** (flights - 1) - 1) * window,
            np.where(flights > 1, 2.0 ** (flights - 2) * window, 0),
        )
        self.window[which] = np.maximum(window, np.minimum(window + on_wire, 2 * largest))
        spent = waits + on_wire / bandwidth
        self.last[which] = start + spent
        return np.asarray(latency + spent)


def _by_round(rows: Array) -> list[tuple[int, Array]]:
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    rounds, starts = np.unique(rows[:, 0], return_index=True)
    return [(int(t), part) for t, part in zip(rounds, np.split(rows, starts[1:]), strict=True)]


def star_time(
    network: Network, rows: Array, links: Links, *, seed: int = 0, cohort: int | None = None
) -> Forecast:
    """Rounds around a hub, from the byte bill.

    `cohort`: clients sampled per round (nothing: all).
    """
    clients, costs = len(links.latency), network.costs
    ends, now = [], 0.0
    wires = Wires(network, clients), Wires(network, clients)
    for t, part in _by_round(rows):
        who, up, down, gradients = part[:, 1].astype(int), *part[:, 2:5].T.astype(float)
        members = sampled(seed, t, clients, cohort) if network.drop_out else who
        now = (
            _star_round(network, t, who, up, down, gradients, links, seed, members, wires, now)
            + costs.round_seconds
        )
        ends.append((t, now))
    return _forecast(ends)


def _star_round(
    network: Network,
    t: int,
    who: Array,
    up: Array,
    down: Array,
    gradients: Array,
    links: Links,
    seed: int,
    cohort: Array,
    wires: tuple[Wires, Wires],
    start: float,
) -> float:
    """When the hub, which asks at `start`, has taken the last answer."""
    clients, costs = len(links.latency), network.costs
    away, missing = network.away(seed, t, clients), network.missing(seed, t, cohort, clients)
    waited = start + (network.patience if missing[cohort].any() else 0.0)
    there = ~missing[who]
    who, up, down, gradients = who[there], up[there], down[there], gradients[there]
    if not len(who):
        return waited
    latency, share = links.latency[who], max(1, len(who))
    jitter = network._jitters(seed, t, (2, clients))[:, who]
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
    network: Network, rows: Array, links: Links, graph: Graph, *, seed: int = 0
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
    own = Links(*(a[members] for a in links))
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
        ) + network._jitters(seed, t, (len(source),))
        came = sent[source] + taking
        if network.changes_training:
            came = np.where(away[source], np.minimum(came, sent[to] + network.patience), came)
        last = sent.copy()
        if len(source):
            last[social] = np.maximum(sent[social], np.maximum.reduceat(came, start[social]))
        ready = last + costs.message_seconds * graph.degrees + costs.round_seconds
        ends.append((t, float(ready.max())))
    return _forecast(ends)


def alone_time(network: Network, rows: Array, links: Links) -> Forecast:
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
        randomness.stream(seed, randomness.Role.COHORT), t, n, s
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
    links: Links | None = None,
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


def forecast_result(network: Network, result: Result, links: Links | None = None) -> Forecast:
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


def forecast_run(network: Network, folder: Path, links: Links | None = None) -> Forecast:
    """Of a finished run in a folder, on any network: nothing is trained again."""
    from coterie.runs.experiment import Experiment  # it knows networks

    experiment = Experiment.from_file(folder / "config.toml")
    federation, method, training = experiment.federation(), experiment.method, experiment.training
    clients = federation.clients
    graph = None
    if isinstance(method, GraphMethod) and not method.hub_between:
        graph = experiment.graph.build(federation)
        if training.held_out:
            graph = graph.subset(
                Simulator(method, federation, experiment.model, training, graph).members
            )
    cohort = training.cohort_size(federation)
    return forecast(
        network,
        read_ledger(folder),
        method,
        clients,
        graph=graph,
        seed=training.seed,
        cohort=cohort,
        links=links,
    )


def read_ledger(folder: Path) -> Array:
    """The bill of a run folder."""
    try:
        table = pq.read_table(folder / "ledger.parquet")
    except OSError as error:
        raise InvalidInput(f"{str(folder)!r} has no readable ledger.parquet: {error}.") from None
    return np.stack([table.column(name).to_numpy() for name in COLUMNS], axis=1)


# -- measuring -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="spec")
def _local(spec: Any, setting: Any, t: Any, client: Any, received: Any, own: Any) -> Any:
    objective = Round(spec, setting, t).objective(client)
    return setting.method.local(received, own, objective)


def measure_gradient_seconds(simulator: Simulator, *, client: int = 0, repeats: int = 20) -> float:
    """Seconds per mini-batch gradient of one client alone on this machine: the median of several
    rounds of local work, compiled beforehand.
    """
    method, place = simulator.method, simulator.place(client)
    with simulator.precision():
        row: ClientState = jax.tree.map(
            lambda leaf: leaf[0], simulator.store.gather(np.array([place]))
        )
        received = method.broadcast(simulator.hub, place) if isinstance(method, StarMethod) else ()
        spent, gradients = [], 1
        for t in range(repeats + 1):
            begun = time.perf_counter()
            out = _local(simulator.spec, simulator.setting, t, place, received, row.own)
            jax.block_until_ready(out)
            spent.append(time.perf_counter() - begun)
            gradients = max(1, int(out.gradients))
    return float(np.median(spent[1:])) / gradients
