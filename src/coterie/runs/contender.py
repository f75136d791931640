"""A method in an experiment, and the channel that its messages go through."""

from __future__ import annotations

from typing import Any, NamedTuple

from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.methods.base import Method, get_method


def named(section: str, given: Any, default: str | None = None) -> tuple[str, dict[str, Any]]:
    """A section that names something: `method = "fedu"` or `[method]` with `name` and options."""
    if isinstance(given, str):
        return given, {}
    if not isinstance(given, dict):
        raise InvalidInput(
            f"{section} is {given!r}, but must be a name or a table with a name and options."
        )
    rest = dict(given)
    name = rest.pop("name", default)
    if not isinstance(name, str):
        raise InvalidInput(f"{section}.name is {name!r}, but must be a string.")
    return name, rest


class Contender(NamedTuple):
    """A method, and the channel that its messages go through."""

    method: Method
    channel: Channel = PLAIN

    @classmethod
    def from_config(cls, given: Any, channel: Channel = PLAIN) -> Contender:
        """`"fedu"`, or a table with a name, options, and perhaps a channel of its own."""
        if isinstance(given, dict) and "channel" in given:
            given = dict(given)
            channel = get_channel(*named("method.channel", given.pop("channel")))
        return cls(get_method(*named("method", given)), channel)

    def to_config(self) -> dict[str, Any]:
        table = {"name": self.method.name, **self.method.to_config()}
        return (
            table
            if self.channel == PLAIN
            else {**table, "channel": {"name": self.channel.name, **self.channel.to_config()}}
        )

    def written(self) -> dict[str, Any]:
        """Its table, if it can be written down: not with what was made in Python."""
        table = self.to_config()
        for key, value in table.items():
            if not isinstance(value, (bool, int, float, str, dict)):
                raise InvalidInput(
                    f"{table['name']}.{key} was made in Python and cannot be written into a run;"
                    " give a name or a table, or use coterie.simulate."
                )
        return table
