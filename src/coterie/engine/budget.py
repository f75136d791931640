"""How often to talk, and how much of a message to send, for a number of bytes on the wire.

`channel = { name = "delta", budget = "20kB" }` becomes a channel with a share and 4-bit numbers,
and the method gets an `exchange_every`. The rule follows what was measured (experiments/graph): few
exchanges of the largest tenth of the differences, in 4 bits, both ways.

1. As many exchanges as the budget pays for at a share of 10%, if that is 3 to 20.
2. If it pays for more than 20: 20, of the largest share that it pays for; more of them only when
   they are whole, and more bits only when all rounds talk.
3. If it pays for fewer than 3: 3, of a smaller share; or as many as it pays for at the smallest.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from coterie.channel.base import Channel
from coterie.channel.plain import Plain
from coterie.channel.sparse import Delta
from coterie.core.errors import InvalidInput
from coterie.core.sizes import parse_bytes
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod

FEWEST, MOST, USUAL = 3, 20, 0.1
LARGER, SMALLER = (1.0, 0.5, 0.2), (0.05, 0.02, 0.01, 0.005)
VALUES = {4: "int4", 8: "int8", 32: "full"}
"""More than 4 bits only where all rounds talk already, and whole messages are sent."""


class Carrier(NamedTuple):
    """What a message costs on the wire: so many bytes, and the payload so many times."""

    envelope: float
    framing: float


CARRIERS = {
    "payload": Carrier(0, 1.0),
    "zenoh": Carrier(400, 1.05),
    "flower": Carrier(11_000, 1.05),
}
"""As bench/wire.py measured it (bench/wire.result.md): the larger values seen, over Zenoh before
version 3 of its wire, which takes 220 to 250 a message: a budget is kept, with room to spare.
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """What the cost of a run depends on, beside method and channel."""

    parameters: int
    rounds: int
    takes_part: float
    """The share of rounds that a client takes part in."""
    clients: int
    graph: Graph | GraphRule | None

    def messages(self, method: Method) -> float:
        """Messages that a client sends and receives in an exchange."""
        if not isinstance(method, GraphMethod) or method.hub_between:
            return 2.0
        if isinstance(self.graph, GraphRule):
            return 2.0 * min(getattr(self.graph, "neighbours", self.clients), self.clients - 1)
        degree = self.clients - 1 if self.graph is None else float(self.graph.degrees.mean())
        return 2.0 * degree


def payload(numbers: int, share: float, bits: int = 4) -> float:
    """Bytes of a message: a scale, the numbers, and gaps, which take about their entropy."""
    chosen = max(1.0, share * numbers)
    gaps = 0.0
    if share < 1:
        rest = 1 - share
        gaps = (-share * math.log2(share) - rest * math.log2(rest)) / share + 0.3
    return 4 + chosen * (bits + gaps) / 8


def settle(method: Method, channel: Channel, run: Run) -> tuple[Method, Channel]:
    """Method and channel as they are used; a budget is replaced by what it buys."""
    if not isinstance(channel, Delta) or channel.budget is None:
        return method, channel
    if method.exchange_every > 1 or method.exchange_growth > 1:
        raise InvalidInput(
            f"{method.name}.exchange_every is {method.exchange_every} and the channel has a budget,"
            " which chooses it; leave one of the two out."
        )
    carrier, numbers = CARRIERS[channel.over], int(getattr(method, "dsub", 0)) or run.parameters
    alone, found = 0, 0.0
    if isinstance(run.graph, GraphRule) and isinstance(method, GraphMethod):
        alone = run.graph.after
        found = carrier.envelope + carrier.framing * run.graph.sketch_bytes(numbers)
    left = parse_bytes(channel.budget) - found

    def exchange(share: float, bits: int = 4) -> float:
        each = carrier.envelope + carrier.framing * payload(numbers, share, bits)
        return run.takes_part * run.messages(method) * each

    count, share = _chosen(left, exchange, run.rounds - alone)
    bits = 4
    if share == 1 and count == run.rounds - alone:
        bits = max(b for b in VALUES if b == 4 or count * exchange(1.0, b) <= left)
    if count < 1:
        needed = found + exchange(SMALLER[-1])
        raise InvalidInput(
            f"delta.budget is {channel.budget!r}, but a single exchange needs {needed:,.0f} bytes"
            f" over {channel.over}."
        )
    changes: dict[str, Any] = {"exchange_every": math.ceil((run.rounds - alone) / count)}
    if "implicit" in method.public() and getattr(method, "pulls_linearly", False):
        changes["implicit"] = True
    through: Channel = Plain(values=VALUES[bits], down=bits < 32, quiet=channel.quiet)
    if share < 1:
        through = Delta(
            share=share,
            values="int4",
            memory=channel.memory,
            indices=channel.indices,
            quiet=channel.quiet,
        )
    return method.replace(**changes), through


def _chosen(left: float, exchange: Any, rounds: int) -> tuple[int, float]:
    """How many exchanges, and the share of a message."""
    count = int(left / exchange(USUAL))
    if count > MOST:
        share = next((s for s in LARGER if MOST * exchange(s) <= left), USUAL)
        count = int(left / exchange(1.0)) if share == 1 else MOST
        return min(count, rounds), share
    if count >= min(FEWEST, rounds):
        return min(count, rounds), USUAL
    for share in SMALLER:
        if min(FEWEST, rounds) * exchange(share) <= left:
            return min(FEWEST, rounds), share
    return min(int(left / exchange(SMALLER[-1])), rounds), SMALLER[-1]
