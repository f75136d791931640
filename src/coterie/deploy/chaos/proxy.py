"""A link that can be cut, held and slowed: a TCP proxy in user space, for machines where netem
(Linux's own) is not at hand or not allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

PART = 16_384
PAUSE = 0.02
SLOW = (20_000.0, 0.05)
"""Bytes a second, and seconds more for every part."""
WORST = ("cut", "hold", "slow", "open")
"""What is done where both ends of a link are struck: the first of these."""


class Proxies:
    """Proxies on loopback, one for every way in which somebody is called, in one thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.links: dict[tuple[str, ...], Link] = {}
        self.states: dict[str, str] = {}

    def open(self, name: str, listen: int, towards: int, caller: str = "") -> None:
        """A link that is struck with `name`, and with the one who calls, if that is told."""
        link = Link(towards)
        self._do(link.listen(listen))
        self.links[name, caller] = link

    def set(self, name: str, state: str) -> None:
        """open, cut, hold or slow: all links of somebody."""
        self.states[name] = state
        for ends, link in self.links.items():
            if name in ends:
                found = {self.states.get(end, "open") for end in ends}
                self._do(link.set(next(worst for worst in WORST if worst in found)))

    def close(self) -> None:
        for link in self.links.values():
            self._do(link.close())
        self._do(_end_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)


async def _end_others() -> None:
    """What still flows, or waits to."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Link:
    """What comes to one port goes on to another, as its state says."""

    def __init__(self, towards: int) -> None:
        self.towards, self.state = towards, "open"
        self.server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()

    async def listen(self, port: int) -> None:
        self.server = await asyncio.start_server(self._came, "127.0.0.1", port)

    async def set(self, state: str) -> None:
        self.state = state
        if state == "cut":
            self._drop()

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        self.state = "cut"
        self._drop()

    def _drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.state == "cut":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.towards)
        except OSError:  # nobody is there at the moment
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self.writers |= both
        try:
            await asyncio.gather(self._flow(reader, far_writer), self._flow(far_reader, writer))
        finally:
            self.writers -= both

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(PART):
                while self.state == "hold":
                    await asyncio.sleep(PAUSE)
                if self.state == "slow":
                    rate, more = SLOW
                    await asyncio.sleep(more + len(part) / rate)
                writer.write(part)
                await writer.drain()
        writer.close()
