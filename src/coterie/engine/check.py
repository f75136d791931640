"""What does not go together, refused before anything is done; for simulator and plan alike."""

from __future__ import annotations

from coterie.channel.base import Channel
from coterie.core.errors import InvalidInput
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod


def check(method: Method, channel: Channel, cohort: int, clients: int) -> None:
    """Refuse a method with a channel that it cannot use, or with a cohort that it cannot have."""
    if method.needs_exact and not channel.lossless:
        raise InvalidInput(
            f"the channel is {channel.name!r}, but {method.name} needs its messages as they are: it"
            ' must be "plain".'
        )
    empty = getattr(method, "empty", None)
    if empty is not None and empty >= clients:
        raise InvalidInput(
            f"{method.name}.empty is {empty}, but must be the number of a client, 0 to"
            f" {clients - 1}."
        )
    graph = isinstance(method, GraphMethod)
    over_copies = graph or (isinstance(method, StarMethod) and channel.down)
    if over_copies and not channel.contracts():
        raise InvalidInput(
            f"the channel {channel.name!r} may send more error than there was to send, which the"
            f" public copies that {method.name} goes over would add up without bound; make it finer"
            " (qsgd: levels² above bucket; random-k: not scaled)."
        )
    if isinstance(method, GraphMethod) and not method.hub_between and cohort < clients:
        raise InvalidInput(
            f"training.cohort is {cohort}, but {method.name} has no hub that could sample clients,"
            f" so it must be {clients}, all of them."
        )
