"""Messages between a hub and its clients as bytes, and where a peer is: version 3 of the wire.

Version 2 had an envelope of JSON, 170 to 200 bytes with its lengths. FedU that sends 1% of a model
of 7,850 numbers has 43 bytes to say. Here the same fields take about 20:

    version, flags, form        a byte each
    the plan                    the first 8 bytes of its fingerprint
    numbers                     7 bits a byte, the last one below 128; negative ones folded in
    scale                       4 bytes, or 8 where 4 do not hold it
    scores                      JSON after its length, if there are any
    frames                      how many, the lengths of all but the last, and then they themselves

Rounds are told as the distance to the request's own, which is mostly 1.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from typing import Any

from coterie.deploy.messages import (
    LARGEST_ENVELOPE,
    WIRE,
    Ahead,
    Rejected,
    Reply,
    Request,
    check_wire,
    checked,
    read_json,
    refused,
    told,
)

KINDS = ("work", "sketch", "finish")
FORM, REPLY, REFUSAL, PLACE = 0x80, 0x88, 0x89, 0x8A
"""The third byte: FORM and the number of a request's kind, or one of these. Its highest bit is set,
which no message of version 2 has: there it belongs to the number of frames, which are fewer, or to
a letter of JSON.
"""
PLAN = 8
"""Bytes of the plan's fingerprint: two plans by accident alike in these would be one in 10^19."""
_MOST_FRAMES = 1 << 12


def is_compact(payload: bytes) -> bool:
    """Whether this is of version 3 or later."""
    return len(payload) > 2 and payload[2] >= FORM


# -- writing ---------------------------------------------------------------------------------------


def _number(value: int) -> bytes:
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _numbers(*values: int) -> bytes:
    return b"".join(map(_number, values))


def _flags(*flags: bool) -> int:
    return sum(flag << i for i, flag in enumerate(flags))


def _real(value: float | None) -> bytes:
    """In 4 bytes, or 8 where 4 do not hold it."""
    if value is None:
        return b""
    short = struct.pack("<f", value) if abs(value) < 1e38 else b""
    exact = bool(short) and struct.unpack("<f", short)[0] == value
    return short if exact else struct.pack("<d", value)


def _head(message: Request | Reply) -> bytes:
    """All but the frames."""
    plan = bytes.fromhex(message.plan[: 2 * PLAN])
    if isinstance(message, Request):
        t, scale = message.round, _real(message.scale)
        flags = _flags(message.send, message.whole, len(scale) == 4, len(scale) == 8)
        form = FORM | KINDS.index(message.kind)
        distances = (t - message.first, t - message.seen, t - message.worked)
        rest = _numbers(t, *distances, message.again) + scale
    else:
        scores = b""
        if message.scores:
            scores = json.dumps(message.scores, sort_keys=True).encode()
        flags = _flags(message.lost, message.newcomer, bool(scores))
        form = REPLY
        rest = _numbers(message.round, message.samples, message.gradients)
        rest += _number(len(scores)) + scores if scores else b""
    lengths = [len(frame) for frame in message.frames[:-1]]
    return (
        bytes([message.wire, flags, form]) + plan + rest + _numbers(len(message.frames), *lengths)
    )


def coded(message: Request | Reply) -> bytes:
    """A message of version 3."""
    return b"".join([_head(message), *message.frames])


def refusal(error: Exception) -> bytes:
    """In place of a reply: why there is none."""
    done = _number(error.done) if isinstance(error, Ahead) else b""
    return bytes([WIRE, _flags(bool(done)), REFUSAL]) + done + told(error).encode()


def placed(position: Mapping[str, Any]) -> bytes:
    """Where a peer is, as it goes with its messages."""
    weight, t = _real(position["weight"]), position["round"]
    head = bytes([position["wire"], _flags(position["counts"], len(weight) == 8), PLACE])
    numbers = _numbers(position["number"], t, t - position["oldest"], position["entry"])
    return head + bytes.fromhex(position["plan"][: 2 * PLAN]) + numbers + weight


# -- reading ---------------------------------------------------------------------------------------


class _Reader:
    """What has been read of a payload so far."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 3

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.payload) - self.at:
            raise Rejected("a message ends before its parts do.")
        self.at += count
        return self.payload[self.at - count : self.at]

    def number(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)
            if shift > 56:
                raise Rejected("a number in a message is too large.")

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]


def _frames(reader: _Reader, most: int) -> tuple[tuple[int, ...], int]:
    """The lengths of the frames but the last one; how many frames there are."""
    count = reader.number()
    if not 0 <= count <= most:
        raise Rejected(f"a message says that it has {count} parts, but must have at most {most}.")
    return tuple(reader.numbers(max(0, count - 1))), count


def _request(reader: _Reader, flags: int, form: int) -> dict[str, Any]:
    if form - FORM >= len(KINDS):
        raise Rejected(f"a message has the form {form}, which is no request's.")
    t, first, seen, worked, again = reader.numbers(5)
    values = {"kind": KINDS[form - FORM], "round": t, "send": bool(flags & 1), "again": again}
    values |= {"whole": bool(flags & 2), "first": t - first, "seen": t - seen, "worked": t - worked}
    if flags & 12:
        width, code = (4, "<f") if flags & 4 else (8, "<d")
        values["scale"] = struct.unpack(code, reader.take(width))[0]
    return values


def _reply(reader: _Reader, flags: int, form: int) -> dict[str, Any]:
    if form == REFUSAL:
        done = reader.number() if flags & 1 else None
        rest = reader.take(len(reader.payload) - reader.at)[:LARGEST_ENVELOPE]
        raise refused(rest.decode(errors="replace"), done)
    if form != REPLY:
        raise Rejected(f"a message has the form {form}, which is no reply's.")
    t, samples, gradients = reader.numbers(3)
    values: dict[str, Any] = {"round": t, "samples": samples, "gradients": gradients}
    if flags & 4:
        values["scores"] = read_json(reader.take(reader.number()))
    return values | {"lost": bool(flags & 1), "newcomer": bool(flags & 2)}


def decoded(kind: type[Any], payload: bytes, most_frames: int = _MOST_FRAMES) -> Any:
    """A Request or Reply. Raises Refusal when a client says that it cannot answer, and Rejected on
    anything that `coded` cannot have written.
    """
    wire, flags, form = payload[0], payload[1], payload[2]
    if check_wire(wire) < WIRE:
        raise Rejected(f"a message of version {wire} of the protocol has the form of a later one.")
    reader = _Reader(payload)
    plan = b"" if form == REFUSAL else reader.take(PLAN)
    values = (_request if kind is Request else _reply)(reader, flags, form)
    lengths, count = _frames(reader, most_frames)
    begins, message = reader.at, kind(plan=plan.hex(), wire=wire, **values)
    frames = [reader.take(length) for length in lengths]
    if count:
        frames.append(reader.take(len(payload) - reader.at))
    whole = dataclasses.replace(checked(message), frames=tuple(frames))
    if reader.at != len(payload) or _head(whole) != payload[:begins]:
        raise Rejected("a message has another form than it should.")
    return whole


def place(facts: bytes) -> dict[str, Any]:
    """What `placed` has written, or JSON, as in version 2. Raises Rejected on anything else."""
    if not is_compact(facts):
        return read_json(facts)
    reader, (wire, flags, form) = _Reader(facts), facts[:3]
    check_wire(wire)
    plan, (number, t, behind, entry) = reader.take(PLAN).hex(), reader.numbers(4)
    weight = struct.unpack("<d" if flags & 2 else "<f", reader.take(8 if flags & 2 else 4))[0]
    found = {"wire": wire, "plan": plan, "number": number, "weight": weight, "round": t}
    found |= {"oldest": t - behind, "counts": bool(flags & 1), "entry": entry}
    if form != PLACE or placed(found) != facts:
        raise Rejected("a position has another form than it should.")
    return found
