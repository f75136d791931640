"""How long TCP takes for a message: latency + b / bandwidth, and what it waits for acknowledgements
while its window is smaller than the message.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.network.options import Array, Network

WINDOW = 14_600.0
"""Bytes that TCP sends before the first acknowledgement: ten segments (RFC 6928)."""
TIMEOUT = 0.2
"""Seconds over a round trip after which a sender's silence halves its window, and again after as
long (RFC 2861; Linux' shortest retransmission timeout). Reno and CUBIC, not BBR.
"""


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
