"""A session: what a participant sends, asks and receives, as events.

Zenoh calls back from threads of its own. All that happens there is to put an event into `events`;
the application's threads do the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.deploy.messages import Rejected

try:
    import zenoh
except ImportError:  # only real federations need it
    raise InvalidInput(
        "a real federation needs the package eclipse-zenoh: pip install 'coterie[deploy]'."
    ) from None
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.leftovers import hang_up
from coterie.deploy.zenoh.spokes import Spoke

HOLD = b"hold"
FLOOD = 16
"""Messages of a neighbour that wait to be looked at; more are not taken."""


def packed(envelope: str, frames: Collection[bytes]) -> bytes:
    """An envelope and frames as one payload: how many frames, then every part after its length."""
    parts = [envelope.encode(), *frames]
    return struct.pack("<I", len(frames)) + b"".join(
        struct.pack("<Q", len(part)) + part for part in parts
    )


def unpacked(payload: bytes, most_frames: int = 1 << 16) -> tuple[bytes, tuple[bytes, ...]]:
    """The inverse of `packed`; raises Rejected on anything else."""
    if len(payload) < 12:
        raise Rejected(f"a message has {len(payload)} bytes, which is less than any has.")
    (count,) = struct.unpack_from("<I", payload)
    if count > most_frames:
        raise Rejected(
            f"a message says that it has {count} parts, but must have at most {most_frames}."
        )
    parts, at = [], 4
    for _ in range(count + 1):
        if at + 8 > len(payload):
            raise Rejected("a message ends before its parts do.")
        (length,) = struct.unpack_from("<Q", payload, at)
        at += 8
        if length > len(payload) - at:
            raise Rejected("a part of a message is longer than the message.")
        parts.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise Rejected("a message goes on after its parts.")
    return parts[0], tuple(parts[1:])


@dataclasses.dataclass(frozen=True)
class Published:
    """A neighbour published a message to this participant: a small table, and a payload."""

    name: str
    facts: bytes
    payload: bytes


@dataclasses.dataclass(frozen=True)
class Asked:
    """A neighbour asks; whoever handles this calls `answer` once."""

    name: str
    payload: bytes
    answer: Callable[[bytes | None], None]
    hold: bool = False
    """Whether a large answer is to wait until it is asked for (turns.py)."""


@dataclasses.dataclass(frozen=True)
class Answered:
    """A neighbour's answer to a question; nothing when none came in time."""

    name: str
    question: Any
    payload: bytes | None
    disputed: bool = False
    """Two processes answered under this name, and not alike."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A neighbour appeared or went away."""

    name: str
    alive: bool


Event = Published | Asked | Answered | Seen


class Net:
    """A session.

    Use as `with Net(address, largest) as net`: an exception must close it, or the process would
    hang. `wake` is called after every event.
    """

    def __init__(
        self, address: Address | Spoke, largest: int, wake: Callable[[], None] = lambda: None
    ) -> None:
        self.address, self._wake = address, wake
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.at_once: Callable[[Asked], bool] = lambda asked: False
        """Called from the answering thread; True when the question was answered there and needs no
        other thread.
        """
        self.flooded = Counter[str]()
        self._waiting = Counter[str]()
        self._largest, self._config = largest, address.config(largest)
        self._questions: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def __enter__(self) -> Net:
        self._session = opened(self._config, self.address.unopened)
        try:
            self._declare()
        except BaseException:
            self._session.close()
            raise
        return self

    def _declare(self) -> None:
        address, session = self.address, self._session
        self._answerer = threading.Thread(target=self._answer_all, daemon=True, name="answers")
        self._answerer.start()
        self._publishers = {}
        self._kept: list[Any] = []
        for name in address.neighbours:
            if address.tells:
                self._publishers[name] = session.declare_publisher(
                    address.key(address.name, "to", name),
                    congestion_control=zenoh.CongestionControl.BLOCK,
                    reliability=zenoh.Reliability.RELIABLE,
                )
            if address.hears:
                self._kept.append(
                    session.declare_subscriber(
                        address.key(name, "to", address.name), self._subscription(name)
                    )
                )
            if address.answers:
                self._kept.append(
                    session.declare_queryable(
                        address.key(address.name, "ask", name), self._being_asked(name)
                    )
                )
        self._token = session.liveliness().declare_token(address.key(address.name, "live"))
        for name in address.neighbours:
            self._kept.append(
                session.liveliness().declare_subscriber(
                    address.key(name, "live"), self._seeing(name), history=True
                )
            )

    def move(self, address: Address | Spoke) -> None:
        """Close the session, so that the next one has this address, which has another certificate.

        Who was asked or asks meanwhile does so again.
        """
        self.__exit__()
        self.address, self._config = address, address.config(self._largest)

    def __exit__(self, *_: object) -> None:
        self._questions.put(None)
        self._session.close()
        if self.address.listen:
            hang_up(self.address.listen)

    def linked(self) -> bool:
        """Whether there is a link to anybody."""
        return bool(self._session.info.links())

    def other_ends(self) -> frozenset[str]:
        """The certificates' names at the other ends of this session's links."""
        names = (link.auth_identifier for link in self._session.info.links())
        return frozenset(name for name in names if name)

    def _put(self, event: Event) -> None:
        self.events.put(event)
        self._wake()

    # -- what goes out -----------------------------------------------------------------------------

    def send(self, name: str, facts: Mapping[str, Any] | bytes, payload: bytes) -> None:
        """Facts that are no bytes go as JSON. Blocks while the link is full; a link that takes
        nothing for some seconds is closed by Zenoh.
        """
        attachment = facts if isinstance(facts, bytes) else json.dumps(facts)
        self._publishers[name].put(payload, attachment=attachment)

    def ask(
        self, name: str, question: Any, payload: bytes, timeout: float, *, hold: bool = False
    ) -> None:
        """The answer comes as an event, in any case."""
        got: list[bytes] = []

        def one(reply: Any) -> None:
            if (sample := reply.ok) is not None and len(got) < 2:
                payload = sample.payload.to_bytes()
                if payload not in got:
                    got.append(payload)

        def end() -> None:
            self._put(Answered(name, question, got[0] if got else None, len(got) > 1))

        handler: Any = zenoh.handlers.Callback(one, end)
        self._session.get(
            self.address.key(name, "ask", self.address.name),
            handler,
            payload=payload,
            attachment=HOLD if hold else None,
            timeout=timeout,
            congestion_control=zenoh.CongestionControl.BLOCK,
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
        )

    # -- what comes in, on threads of Zenoh --------------------------------------------------------

    def _subscription(self, name: str) -> Callable[[Any], None]:
        def published(sample: Any) -> None:
            with self._lock:
                if self._waiting[name] >= FLOOD:
                    self.flooded[name] += 1
                    return
                self._waiting[name] += 1
            attachment = sample.attachment
            facts = b"" if attachment is None else attachment.to_bytes()
            self._put(Published(name, facts, sample.payload.to_bytes()))

        return published

    def _being_asked(self, name: str) -> Callable[[Any], None]:
        return lambda query: self._questions.put((name, query))

    def _seeing(self, name: str) -> Callable[[Any], None]:
        return lambda sample: self._put(Seen(name, sample.kind == zenoh.SampleKind.PUT))

    # -- threads of the application ----------------------------------------------------------------

    def _answer_all(self) -> None:
        while (item := self._questions.get()) is not None:
            name, query = item
            asked = Asked(
                name,
                b"" if query.payload is None else query.payload.to_bytes(),
                self._answering(name, query),
                query.attachment is not None and query.attachment.to_bytes() == HOLD,
            )
            try:
                answered = self.at_once(asked)
            except Exception:  # whatever it was: later questions must be answered
                with contextlib.suppress(Exception):
                    asked.answer(None)
                continue
            if not answered:
                self._put(asked)

    def _answering(self, name: str, query: Any) -> Callable[[bytes | None], None]:
        def answer(payload: bytes | None) -> None:
            with query:
                if payload is not None:
                    with contextlib.suppress(zenoh.ZError):  # who asked is gone
                        query.reply(self.address.key(self.address.name, "ask", name), payload)

        return answer

    def next(self, timeout: float) -> Event | None:
        """The next event, or nothing after so many seconds."""
        try:
            event = (
                self.events.get(timeout=max(0.0, timeout))
                if timeout > 0
                else self.events.get_nowait()
            )
        except queue.Empty:
            return None
        if isinstance(event, Published):
            with self._lock:
                self._waiting[event.name] -= 1
        return event


def opened(config: dict[str, Any], failed: Callable[[str], CoterieError]) -> Any:
    """A session; raises `failed` of the reason when there can be none."""
    zenoh.try_init_log_from_env()  # silent, unless RUST_LOG asks for it
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
    except zenoh.ZError as error:
        raise failed(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return (
        str(error).strip().splitlines()[0][:300].rstrip(".")
        if str(error).strip()
        else "no reason given"
    )
