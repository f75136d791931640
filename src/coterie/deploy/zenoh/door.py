"""A hub's door: the port that others reach, before the gate.

Who calls must first say hello as TLS does, within a few seconds and a few bytes. Only then, and
only if its address has not failed too often (`strangers.py`), is it connected with the gate, which
listens on this machine alone, and bytes go to and fro unread: TLS, with certificates on both sides,
is between the caller and the gate. So connections that say nothing, or say it byte by byte, never
reach Zenoh, which would keep everybody waiting for them. The gate tells the door whose certificate
it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Callable

from coterie.core.errors import InvalidInput
from coterie.deploy.zenoh.strangers import Strangers, whose

HELLO_SECONDS = 5.0
LONGEST = 5 + (1 << 14)
"""Bytes of a TLS record."""
WAITING = 128
"""Who may be about to say hello; when more come, those that have said nothing for longest go."""
PART = 1 << 16
STUCK = 30.0
"""Seconds in which somebody must take 64 kB; Zenoh has given the link up by then."""
GOODBYE = 2.0
"""Seconds in which who is hung up on may read why."""
HANDSHAKE, CLIENT_HELLO = 0x16, 0x01
NOT_NOW = bytes.fromhex("15 0303 0002 02 50")
"""As TLS says that it is not the caller's fault: a fatal alert, internal_error."""


@dataclasses.dataclass
class Visit:
    """Somebody who is connected with the gate."""

    address: str
    caller: socket.socket
    gate: int
    """Which of the gates that were there one after the other."""
    name: str | None = None
    """Of the certificate that it has shown."""


class Door:
    """Listens from `open` to `close`, in a thread of its own."""

    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self.host, self.port, self.say = host.strip("[]"), port, say
        self.strangers = Strangers()
        self._inside: int | None = None
        """The port of the gate on this machine; nothing while there is none."""
        self._gates = 0
        self._visits: dict[int, Visit] = {}
        """By the port from which the door calls the gate."""
        self._waiting: dict[socket.socket, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Nothing happens if it is open."""
        if self._thread is not None:
            return
        try:
            found = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, place = found[0][0], found[0][4]
            self._listener = socket.create_server(
                place,  # type: ignore[arg-type]
                family=family,
                backlog=1024,
                dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            raise InvalidInput(
                f"nobody can listen on {self.host}:{self.port}: {error.strerror or error}."
            ) from None
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="door")
        self._thread.start()
        self._accepting = asyncio.run_coroutine_threadsafe(self._accept(), self._loop)

    def towards(self, inside: int | None) -> None:
        """Where the gate is from now on; what ends with the former one is nobody's failure."""
        self._gates += 1
        self._inside = inside

    def proven(self, port: int, name: str) -> None:
        """The gate has seen this certificate at the other end of what came from the door's port."""
        with contextlib.suppress(RuntimeError):  # it is closing
            self._loop.call_soon_threadsafe(self._proven, port, name)

    def _proven(self, port: int, name: str) -> None:
        visit = self._visits.get(port)
        if visit is None or visit.name is not None:
            return
        visit.name = name
        if not self.strangers.shows(visit.address, name, time.monotonic()):
            self._refuse(visit.address, f"too many connections with the certificate of {name}")
            with contextlib.suppress(OSError):
                visit.caller.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._thread = None
            self._listener.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self) -> None:
        visits = set[asyncio.Task[None]]()
        while True:
            try:
                caller, place = await self._loop.sock_accept(self._listener)
            except OSError:  # it has gone again, or there are no more files to open
                await asyncio.sleep(0.05)
                continue
            visit = self._loop.create_task(self._visit(caller, whose(place[0])))
            visits.add(visit)
            visit.add_done_callback(visits.discard)

    async def _visit(self, caller: socket.socket, address: str) -> None:
        with caller, contextlib.suppress(OSError):
            caller.setblocking(False)
            hello = await self._hello(caller)
            if not hello:
                self.strangers.refused["no TLS, or not in time"] += 1
                return
            why = self.strangers.refuses(address, time.monotonic())
            if why:
                self._refuse(address, why)
                await self._loop.sock_sendall(caller, NOT_NOW)
            elif await self._there():
                await self._let_in(caller, address, hello)

    async def _there(self) -> bool:
        """Wait while the gate opens anew."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HELLO_SECONDS):
                while self._inside is None:
                    await asyncio.sleep(0.05)
        return self._inside is not None

    def _refuse(self, address: str, why: str) -> None:
        self.strangers.refused[why] += 1
        if self.strangers.tell(address, time.monotonic()):
            self.say(f"callers from {address} are kept waiting: {why}.")

    async def _hello(self, caller: socket.socket) -> bytes:
        """The first TLS record, if it is a hello; nothing otherwise."""
        if len(self._waiting) >= WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self._waiting[caller] = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                return await self._first_record(caller)
        except (OSError, TimeoutError):
            return b""
        finally:
            self._waiting.pop(caller, None)

    async def _first_record(self, caller: socket.socket) -> bytes:
        got = b""
        while part := await self._loop.sock_recv(caller, LONGEST - len(got)):
            got += part
            length = record_length(got)
            if length is None:
                return b""
            if length and len(got) >= length:
                return got
        return b""

    async def _let_in(self, caller: socket.socket, address: str, hello: bytes) -> None:
        visit = Visit(address, caller, self._gates)
        with socket.socket() as gate:
            gate.setblocking(False)
            await self._loop.sock_connect(gate, ("127.0.0.1", self._inside))
            for end in (caller, gate):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            port = gate.getsockname()[1]
            self._visits[port] = visit
            self.strangers.enters(address, time.monotonic())
            try:
                await self._between(caller, gate, hello)
            finally:
                del self._visits[port]
                ours = visit.gate == self._gates
                self.strangers.leaves(address, visit.name, time.monotonic(), failed=ours)

    async def _between(self, caller: socket.socket, gate: socket.socket, hello: bytes) -> None:
        await self._loop.sock_sendall(gate, hello)
        ways = ((caller, gate), (gate, caller))
        flows = [self._loop.create_task(self._flow(*way)) for way in ways]
        try:
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(flows, timeout=GOODBYE)
        finally:
            for flow in flows:
                flow.cancel()
            await asyncio.gather(*flows, return_exceptions=True)

    async def _flow(self, source: socket.socket, towards: socket.socket) -> None:
        while part := await self._loop.sock_recv(source, PART):
            async with asyncio.timeout(STUCK):
                await self._loop.sock_sendall(towards, part)
        towards.shutdown(socket.SHUT_WR)


def record_length(got: bytes) -> int | None:
    """Bytes of the TLS record that begins so, if it is a client's hello; 0: it is too early to
    tell; None: it is something else.

    >>> record_length(b"GET / HTTP/1.1"), record_length(bytes.fromhex("160301"))
    (None, 0)
    >>> record_length(bytes.fromhex("160301 0100 01 0000fc 0303"))
    261
    """
    expected = (HANDSHAKE, 3)
    if any(a != b for a, b in zip(got, expected, strict=False)):
        return None
    if len(got) < 6:
        return 0
    length = 5 + int.from_bytes(got[3:5])
    if got[5] != CLIENT_HELLO or not 9 < length <= LONGEST:
        return None
    return length
