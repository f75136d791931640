"""Whose turn it is to answer, when the answers of a round are too large to come all at once.

What a hub asks such a client to do it asks with `hold`: the client works, keeps its answer, and
says no more than that it is READY. A few at a time are then asked to SEND. So what waits in the
hub's and the gate's memory is a few answers, whatever the number of clients. A client of an older
version knows nothing of this, and answers at once.
"""

from __future__ import annotations

import itertools

READY = SEND = b""
"""No message is empty, so neither can be taken for one."""
TURN = 15.0
"""Seconds after which a client that was asked to send keeps nobody else waiting any more. What it
sends later is taken all the same: it may have a slow link.
"""
TOGETHER = 4
"""Times `most` that may be under way when those that are late count, too: what slow links bring
together has an end. Who is asked and never answers leaves when its question is dropped.
"""


class Turns:
    """Who is ready, and who was asked to send: at most `most` at a time; None: nobody waits."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._ready: dict[int, None] = {}
        self._asked: dict[int, float] = {}

    def wait(self, k: int) -> bool:
        """Client k is ready; False where it was to send, or nobody waits."""
        if self.most is None or k in self._asked:
            return False
        self._ready[k] = None
        return True

    def next(self, now: float) -> list[int]:
        """Who is to be asked to send now, first come, first served."""
        if self.most is None or not self._ready:
            return []
        under_way = sum(now - at < TURN for at in self._asked.values())
        places = min(self.most - under_way, TOGETHER * self.most - len(self._asked))
        found = [*itertools.islice(self._ready, max(0, places))]
        for k in found:
            del self._ready[k]
            self._asked[k] = now
        return found

    def leave(self, k: int) -> None:
        """Client k has sent, or is gone."""
        self._ready.pop(k, None)
        self._asked.pop(k, None)

    def close(self) -> list[int]:
        """The round is over: who was still waiting. What is under way comes, and is not taken."""
        waited = [*self._ready]
        self._ready.clear()
        return waited
