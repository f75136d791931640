"""A method in an experiment, the channel that its messages go through, perhaps its own graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.methods.base import Method, get_method
from coterie.runs.graph_options import GraphOptions


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
    """A method, the channel that its messages go through, and its graph, where that is not the one
    of the experiment.
    """

    method: Method
    channel: Channel = PLAIN
    graph: GraphOptions | None = None

    @classmethod
    def from_config(cls, given: Any, channel: Channel = PLAIN) -> Contender:
        """`"fedu"`, or a table: a name, options, and perhaps a channel and a graph of its own."""
        given, graph = dict(given) if isinstance(given, dict) else given, None
        if isinstance(given, dict) and "channel" in given:
            channel = get_channel(*named("method.channel", given.pop("channel")))
        if isinstance(given, dict) and "graph" in given:
            kind = given.pop("graph")
            graph = GraphOptions.from_config({"kind": kind} if isinstance(kind, str) else kind)
        made = cls(get_method(*named("method", given)), channel, graph)
        if graph is not None and not made.method.couples:
            raise InvalidInput(
                f"method.graph is {graph.kind!r}, but {made.method.name} goes over no graph; leave"
                " it out."
            )
        return made

    def to_config(self) -> dict[str, Any]:
        table = {"name": self.method.name, **self.method.to_config()}
        if self.channel != PLAIN:
            table["channel"] = {"name": self.channel.name, **self.channel.to_config()}
        if self.graph is not None:
            table["graph"] = self.graph.to_config()
        return table

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
