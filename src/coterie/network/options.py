"""The network and machines that a deployment would have, as options; and what its engine costs.

    [network]
    engine = "zenoh"
    latency = 0.04           # seconds, one way
    up = 125e3               # bytes per second; 1 Mbit/s = 125e3
    down = 1.25e6
    gradient_seconds = 2e-3

Links differ from client to client by `spread`, drawn once by the network's own seed; drop-outs and
jitter by the run's seed and the round: the same for every method.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import Options, option, traced_dataclass
from coterie.engine.roll import Absent

Array = NDArray[Any]


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
        work_seconds=6.4, message_seconds=0.02, round_seconds=0.5, framing=1.05, envelope=2000
    ),
}
"""Rough.

Flower: about 7 s a round were seen on loopback (3 clients), most of it starting a process per
message and waiting for the next look; how they split is assumed. Zenoh: as bench/network.py
measured it on two cores with little else to do, messages of 38 kB. `framing` was measured too
(bytes of the device over the payload's).
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

    def links(self, clients: int) -> LinkSpeeds:
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
        return LinkSpeeds(
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

    def jitters(self, seed: int, t: int, shape: tuple[int, ...]) -> Array:
        return (
            np.random.default_rng([seed, 0x71E7, t]).exponential(self.jitter, shape)
            if self.jitter
            else np.zeros(shape)
        )


class LinkSpeeds(NamedTuple):
    """One number per client: seconds one way, bytes per second each way (inf: without limit),
    seconds per gradient. May be made by hand.
    """

    latency: Array
    up: Array
    down: Array
    gradient: Array
