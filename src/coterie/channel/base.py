"""What a channel is: how a message becomes bytes, and what is done about the part that is cut off.

A channel sees a message as one vector x ∈ R^d (all leaves of the message, flattened in pytree
order), together with a `base` ∈ R^d that both ends know beforehand and that is near x. It sends a
payload; both ends make the same approximation x̂ of x from payload and base.

`compress` runs on the sender, `expand` on both ends; both are pure and run inside compiled rounds,
mapped over clients. `size` gives, inside a compiled round, exactly the number of bytes that
`encode` makes of the payload; `decode` is the inverse of `encode`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from coterie.core.options import Options, chosen, option, registered

CHANNELS: dict[str, type[Channel]] = {}
C = TypeVar("C", bound="Channel")

MEMORIES = ("none", "errors", "copies")
MEMORY_HELP = (
    "what becomes of the part that is cut off: lost, added to the next message (error feedback), or"
    " kept as the difference to public copies at both ends (always so between neighbours on a"
    " graph, and for what a hub sends)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel(Options):
    """A compressor and how it remembers.

    Subclasses override the functions below; every one of them is stateless unless it says
    otherwise.
    """

    summary: ClassVar[str] = ""
    accumulates: ClassVar[bool] = False
    """True when the compressor keeps what it cuts off by itself, so that it must be given a
    stream's increments and not what is left to send.
    """

    @property
    def cyclic(self) -> bool:
        """True when every client sends the same few coordinates in a round, whatever they hold;
        then most of a public copy is old on purpose.
        """
        return False

    memory: str = option("none", MEMORY_HELP, choices=MEMORIES)
    down: bool = option(False, "compress what the hub sends, too")
    quiet: float | None = option(
        None,
        "send nothing but a note while no number has moved by more than this share of the largest"
        " one, compared with what the other end has; nothing: always send",
        low=0,
    )

    @property
    def lossless(self) -> bool:
        """True when x̂ = x, bit for bit."""
        return False

    def contracts(self) -> bool:
        """True when x̂ is nearer to x than the base is (on average at least), as public copies and
        error feedback need it.
        """
        return True

    def downward(self) -> Channel:
        """The channel of the other direction, where it differs."""
        return self

    def private_init(self, d: int, dtype: Any) -> Any:
        """What only the sender keeps from message to message."""
        return ()

    def shared_init(self, d: int, dtype: Any) -> Any:
        """What both ends keep and change alike."""
        return ()

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        """(payload, private).

        `key` is the same at both ends; the payload is a pytree of arrays whose shapes depend on d
        and the options only.
        """
        raise NotImplementedError

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        """(x̂, shared)."""
        raise NotImplementedError

    def size(self, payload: Any, d: int) -> Any:
        """The number of bytes of `encode(payload)`: a number, or a traced integer where it depends
        on the values.
        """
        raise NotImplementedError

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        """On the wire. Plain Python and NumPy."""
        raise NotImplementedError

    def decode(self, data: bytes, d: int, dtype: Any) -> Any:
        """The payload back from the wire; raises InvalidInput on anything that `encode` cannot have
        made.
        """
        raise NotImplementedError


@dataclass_transform(frozen_default=True, kw_only_default=True)
def channel(name: str) -> Callable[[type[C]], type[C]]:
    """Register a channel under its name for TOML, Python and the command line."""
    return registered(CHANNELS, name)


def get_channel(name: str, options: dict[str, Any] | None = None) -> Channel:
    """A registered channel with its options from plain values."""
    return chosen(CHANNELS, "the channel", name, options)
