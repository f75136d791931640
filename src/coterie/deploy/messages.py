"""What goes over a wire between a hub and its clients, whatever carries it.

`frames` are the payloads that the byte bill counts: messages of the method, encoded by the channel.
The rest (round, plan, what arrived last) is the envelope: JSON, or over Zenoh some twenty bytes
(`deploy/compact.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput

LARGEST_ENVELOPE = 1 << 16
WIRE = 3
"""The version of what goes over the wire, counted up when envelopes change. That before it is
understood as well: a client answers in the version in which it was asked, so clients may be
upgraded one by one, and then their hub. Versions 2 and 3 have the same fields; since 3 Zenoh
carries them in fewer bytes.
"""
SHORT = 16
"""Digits of a plan's fingerprint that are enough to tell plans apart."""


class Rejected(CoterieError):
    """A message that an honest participant cannot have sent, or not now.

    Nothing has changed; the sentence goes to the log, with who sent it.
    """


class Ahead(Rejected):
    """A client is asked for a round that it has done already, by a hub that does not know of it:
    the hub's folder is older than the client's.
    """

    def __init__(self, asked: int, done: int) -> None:
        super().__init__(
            f"the hub asks for round {asked}, but this client has done round {done} already: the"
            " hub's folder is older than this client's."
        )
        self.done = done


class Forgot(InvalidInput):
    """A client has less in its folder than its hub has had from it: the folder was lost, or an
    older copy of it was put back.
    """


class Refusal(CoterieError):
    """A client says why it cannot answer; `done`: because it has done this round already."""

    def __init__(self, sentence: str, done: int | None = None) -> None:
        super().__init__(sentence)
        self.done = done


@dataclasses.dataclass(frozen=True)
class Request:
    """From the hub to a client."""

    plan: str
    """The plan's fingerprint."""
    kind: str
    """"work": train and answer. "sketch": say how the model has moved, before the round. "finish":
    take the last word, write the models down.
    """
    round: int
    send: bool = True
    """False: train, but send no message (a method in which all train and some send)."""
    first: int = 0
    """The round that the first frame belongs to; the others follow one by one."""
    whole: bool = False
    """The only frame is a whole copy, which puts the client in step again."""
    seen: int = -1
    """The round of this client's last message that the hub accepted."""
    worked: int = -1
    """The last round of this client's work that the hub has taken."""
    again: int = 0
    """When the hub's operator set the run back to an older copy, if ever (seconds since the
    epoch)."""
    scale: float | None = None
    """Graph: the sum of the weights of the neighbours that pull."""
    wire: int = WIRE
    frames: tuple[bytes, ...] = ()


@dataclasses.dataclass(frozen=True)
class Reply:
    """From a client to the hub."""

    plan: str
    round: int
    """With a sketch, `sketch_round` of the round before which it was asked for."""
    samples: int
    gradients: int = 0
    lost: bool = False
    """The client has lost track of what it received, and asks for a whole copy."""
    newcomer: bool = False
    """The client has lost what it had, and goes on as one who has just joined."""
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    """How its models do on its own data, if it agrees to tell."""
    wire: int = WIRE
    frames: tuple[bytes, ...] = ()


def sketch_round(t: int) -> int:
    """The number of replies with sketches before round t: no round has it."""
    return -1 - t


def envelope(message: Request | Reply) -> str:
    """All but the frames, as JSON."""
    names = [f.name for f in dataclasses.fields(message) if f.name != "frames"]
    return json.dumps({name: getattr(message, name) for name in names}, sort_keys=True)


def digest(request: Request, plan: str) -> str:
    """Of what is asked, under the plan of this fingerprint: the same in whatever version it is
    asked, so that a hub may be upgraded between two times that it asks.
    """
    alike = dataclasses.replace(request, plan=plan, wire=2)
    return hashlib.sha256(envelope(alike).encode() + b"".join(request.frames)).hexdigest()


def told(error: Exception) -> str:
    """Why a client cannot answer, without the folders of its disk, which are nobody else's
    business.
    """
    return re.sub(r"(?:/[^/\s'\":,;]+)+/([^/\s'\":,;]+)", r"…/\1", str(error))[:500]


def refusal(error: Exception) -> str:
    """The envelope of a client that cannot answer."""
    done = {"done": error.done} if isinstance(error, Ahead) else {}
    return json.dumps({"error": told(error), **done})


def refused(sentence: str, done: Any) -> Refusal:
    """What a client has told, read."""
    return Refusal(one_line(sentence), done if _is(done, "int") else None)


LONGEST_TEXT = 600
"""Characters: our own sentences are shorter, and have the command that helps at their end."""


def one_line(text: str) -> str:
    """What somebody else has written, fit for a log: one line, and nothing that moves a terminal's
    cursor.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[
        :LONGEST_TEXT
    ]


_SCORE = re.compile(r"[a-z0-9-]{1,40}/[a-z0-9_-]{1,40}")
"""What a score is called, such as test/personal: it is shown to people."""


def _is(value: Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53
    if kind == "str":
        return isinstance(value, str) and len(value) <= 200
    if kind == "scores":
        return (
            isinstance(value, dict)
            and len(value) <= 50
            and all(_SCORE.fullmatch(k) and _is(v, "float") for k, v in value.items())
        )
    if kind == "float":
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
    return value is None or _is(value, "float")


_KINDS = {
    Request: {
        "plan": "str",
        "kind": "str",
        "round": "int",
        "send": "bool",
        "first": "int",
        "whole": "bool",
        "seen": "int",
        "worked": "int",
        "again": "int",
        "scale": "number",
        "wire": "int",
    },
    Reply: {
        "plan": "str",
        "round": "int",
        "samples": "int",
        "gradients": "int",
        "lost": "bool",
        "newcomer": "bool",
        "scores": "scores",
        "wire": "int",
    },
}


def read_json(text: str | bytes) -> dict[str, Any]:
    """A small JSON table; raises Rejected on anything else."""
    if len(text) > LARGEST_ENVELOPE:
        raise Rejected(
            f"an envelope has {len(text)} bytes, but must have at most {LARGEST_ENVELOPE}."
        )
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise Rejected("an envelope is not JSON.") from None
    if not isinstance(values, dict):
        raise Rejected("an envelope is not a table.")
    return values


def opened(kind: type[Any], text: str | bytes, frames: tuple[bytes, ...]) -> Any:
    """A Request or Reply from its envelope and frames; raises Refusal when a client says that it
    cannot answer, and Rejected on anything that `envelope` cannot have written.
    """
    values, expected = read_json(text), _KINDS[kind]
    if kind is Reply and isinstance(values.get("error"), str) and set(values) <= {"error", "done"}:
        raise refused(values["error"], values.get("done"))
    check_wire(values.get("wire", 1))
    if set(values) != set(expected):
        raise Rejected("an envelope lacks fields or has others than it should.")
    if not all(isinstance(f, bytes) for f in frames):
        raise Rejected("a message holds something other than bytes.")
    return checked(kind(**values, frames=tuple(frames)))


def checked(message: Any) -> Any:
    """A Request or Reply whose fields are what they may be; raises Rejected."""
    for key, kind in _KINDS[type(message)].items():
        value = getattr(message, key)
        if not _is(value, kind):
            raise Rejected(f"{key} in an envelope is {str(value)[:40]!r}, which is not allowed.")
    return message


def check_wire(theirs: Any) -> int:
    """Raises Rejected on a version that is not understood here."""
    if _is(theirs, "int") and theirs in (WIRE - 1, WIRE):
        return int(theirs)
    raise Rejected(
        f"the other side speaks version {str(theirs)[:20]} of the protocol, and this one"
        f" understands {WIRE - 1} and {WIRE}: upgrade whichever is older, clients before their hub."
    )


def total(frames: tuple[bytes, ...]) -> int:
    return sum(map(len, frames))


def check_plan(mine: str, theirs: str) -> None:
    if theirs not in (mine, mine[:SHORT]):
        raise Rejected(
            f"the other side has another plan (fingerprint {one_line(theirs)[:8]}…, here"
            f" {mine[:8]}…); all must have the same plan file."
        )


def check_size(frames: tuple[bytes, ...], most: int) -> None:
    if total(frames) > most:
        raise Rejected(f"a message has {total(frames)} bytes, but must have at most {most}.")


def refuse(error: Exception) -> Rejected:
    """What decoding raised, as a rejection."""
    return error if isinstance(error, Rejected) else Rejected(str(error))


__all__ = [
    "Ahead",
    "Forgot",
    "InvalidInput",
    "Refusal",
    "Rejected",
    "Reply",
    "Request",
    "check_plan",
    "check_size",
    "check_wire",
    "checked",
    "digest",
    "envelope",
    "one_line",
    "opened",
    "read_json",
    "refusal",
    "refuse",
    "refused",
    "sketch_round",
    "told",
    "total",
]
