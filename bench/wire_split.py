"""Where the bytes of bench/wire.py go: what is looked at on the bridge, packet by packet.

`python bench/wire_split.py CLIENTS` in the bridge's namespace counts what passes the clients'
ports, and answers every line of its input with its counters so far, as JSON. TLS 1.3 shows where
its records begin and how long they are: a record of n bytes of text takes n + 22.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

RECORD, INSIDE = 5, 17
"""Bytes of a TLS record beside its text: before it, and behind it (a type and a tag)."""


class Split(NamedTuple):
    """Bytes per client and round, both ways."""

    payload: float
    """What is billed."""
    ours: float
    """The envelopes of a request and its reply."""
    zenoh: float
    """The rest of what is inside TLS: queries, keys, keep-alives."""
    tls: float
    headers: float
    """Ethernet, IP and TCP, of packets that carry something."""
    acks: float
    """Packets that carry nothing."""
    packets: float
    """How many there are, of both kinds."""

    def row(self) -> str:
        """Cells of a table; whose titles are HEAD."""
        *some, packets = self
        shown = [f"{value:,.0f}" for value in (*some, sum(some))]
        return " | ".join([*shown, f"{packets:.1f}"])


HEAD = "payload | ours | Zenoh | TLS | TCP, IP, Ethernet | acknowledgements | together | packets"


class Stream:
    """One direction of a connection: where TLS records end."""

    def __init__(self) -> None:
        self.next: int | None = None
        self.held = b""

    def read(self, sequence: int, data: bytes) -> tuple[int, int]:
        """(records, bytes of text in them) that begin in these bytes; what comes again counts
        not."""
        if self.next is not None:
            again = (self.next - sequence) & 0xFFFFFFFF
            data = data[again:] if again < 1 << 31 else data
        self.next = (sequence + len(data)) & 0xFFFFFFFF
        records = text = 0
        self.held += data
        while len(self.held) >= RECORD:
            (length,) = struct.unpack_from(">H", self.held, 3)
            if len(self.held) < RECORD + length:
                break
            self.held = self.held[RECORD + length :]
            records, text = records + 1, text + max(0, length - INSIDE)
        return records, text


class Tap:
    """Counts packets; knows connections by their ends."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        self.streams: dict[bytes, Stream] = {}

    def packet(self, data: bytes, size: int) -> None:
        if data[12:14] != b"\x08\x00" or data[23] != 6:  # ARP, and whatever else there is
            self.seen.update(other=size)
            return
        start = 14 + 4 * (data[14] & 15)
        length = struct.unpack_from(">H", data, 16)[0] - (start - 14)
        sequence = struct.unpack_from(">I", data, start + 4)[0]
        header = 4 * (data[start + 12] >> 4)
        carried = length - header
        if carried <= 0:
            self.seen.update(acks=size, packets=1)
            if data[start + 13] & 2:  # a new connection
                ends = data[26:34] + data[start : start + 4]
                self.streams[ends] = Stream()
            return
        ends = data[26:34] + data[start : start + 4]
        stream = self.streams.setdefault(ends, Stream())
        body = data[start + header : start + length]
        records, text = stream.read(sequence, body)
        self.seen.update(headers=size - carried, packets=1, carried=carried)
        self.seen.update(records=records, text=text)


def listen(clients: int) -> None:
    tap, ports = Tap(), {f"port{k}" for k in range(clients)}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as s:
        s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        print("up", flush=True)
        while True:
            ready = select.select([s, sys.stdin], [], [])[0]
            if s in ready:
                data, where = s.recvfrom(65536)
                if where[0] in ports:
                    tap.packet(data, len(data))
            elif not sys.stdin.readline():
                return
            else:
                print(json.dumps(tap.seen), flush=True)


class Looker:
    """The process that listens, from outside."""

    def __init__(self, namespace: str, clients: int) -> None:
        command = ["ip", "netns", "exec", namespace, sys.executable, str(Path(__file__).resolve())]
        self.process = subprocess.Popen(
            [*command, str(clients)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "up\n"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def counted(self) -> Counter[str]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return Counter(json.loads(self._line()))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def split(seen: dict[str, int], share: int, payload: float) -> Split:
    """`seen` in so many rounds of a client together."""
    each = {name: count / share for name, count in seen.items()}
    records, text = each.get("records", 0.0), each.get("text", 0.0)
    ours = envelopes()
    return Split(
        payload=payload,
        ours=ours,
        zenoh=text - payload - ours,
        tls=(RECORD + INSIDE) * records,
        headers=each.get("headers", 0.0),
        acks=each.get("acks", 0.0),
        packets=each.get("packets", 0.0),
    )


def envelopes() -> float:
    """Bytes of the envelopes of a round in the middle of such a run."""
    from coterie.deploy.compact import coded
    from coterie.deploy.messages import Reply, Request

    plan, t, frame = "0" * 32, 100, (b"",)
    facts: dict[str, Any] = {"first": t - 1, "seen": t - 1, "worked": t - 1, "scale": 2.0}
    request = Request(plan, "work", t, **facts, frames=frame)
    return len(coded(request)) + len(coded(Reply(plan, t, 100, 100, frames=frame)))


if __name__ == "__main__":
    listen(int(sys.argv[1]))
