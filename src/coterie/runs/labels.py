"""What methods are called in tables: a title, and what tells it from its namesakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.channel import PLAIN
from coterie.core import schedule
from coterie.core.options import Options
from coterie.methods.local import Local
from coterie.runs.contender import Contender
from coterie.runs.graph_options import GraphOptions


def distinct(names: Sequence[str], suffix: str) -> list[str]:
    """Names that are there before get a number, so that no two are alike.

    >>> distinct(["a", "b", "a", "a-2"], "-{}")
    ['a', 'b', 'a-2', 'a-2-2']
    """
    out: list[str] = []
    for name in names:
        numbered, number = name, 1
        while numbered in out:
            number += 1
            numbered = name + suffix.format(number)
        out.append(numbered)
    return out


def local_label(m: Local, all_: Sequence[Local]) -> str:
    """`Local`; with its gradient work where there are several of its kind."""
    if sum(type(o) is type(m) for o in all_) < 2:
        return m.title
    amount = f"{m.local_epochs} epochs" if m.local_epochs else f"{m.local_steps} steps"
    rate = f"{m.lr:g}" if isinstance(m.lr, float) else _text(schedule.to_config(m.lr))
    return f"{m.title} ({amount}, lr {rate}, {m.trains})"


def _text(value: Any) -> str:
    """An option's value in a label; a schedule as `inverse-time 8 4`."""
    if isinstance(value, dict):
        return " ".join(_text(v) for v in value.values())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def label_of(c: Contender, all_: Sequence[Contender]) -> str:
    """A method's title and channel, each with the options that tell it from its namesakes; not
    those of the method where each has a graph of its own, which tells them apart.
    """
    namesakes = [o for o in all_ if o.method.title == c.method.title]
    graphs = [o.graph for o in namesakes]
    told = len(graphs) > 1 and None not in graphs and all(graphs.count(g) == 1 for g in graphs)
    label = c.method.title + ("" if told else _differing(c.method, [o.method for o in namesakes]))
    if c.graph is not None:
        label += over(c.graph, [o.graph for o in namesakes if o.graph is not None])
    if c.channel == PLAIN:
        return label
    return f"{label} + {c.channel.name}" + _differing(
        c.channel, [o.channel for o in namesakes if o.channel.name == c.channel.name]
    )


def graph_text(graph: GraphOptions) -> str:
    """A graph by its kind, and by its rule where it is learnt: `ring`, `learn: kin`."""
    return graph.kind if graph.kind != "learn" else f"learn: {graph.learns.name}"


def over(mine: GraphOptions, all_: Sequence[GraphOptions]) -> str:
    """A graph in a label: ` over ring`, ` over learn: kin (bits=1)`."""
    text = f" over {graph_text(mine)}"
    if mine.kind != "learn":
        return text + _differing(mine, [g for g in all_ if g.kind == mine.kind])
    rules = [g.learns for g in all_ if g.kind == "learn"]
    rule = mine.learns
    return text + _differing(rule, [r for r in rules if r.name == rule.name])


def _differing(mine: Options, all_: Sequence[Options]) -> str:
    """The options in which these differ, in brackets; names and switches only where they are not as
    usual.
    """
    configs, my = [o.to_config() for o in all_], mine.to_config()
    differing = [
        k for k in mine.public() if k in my and len({str(config.get(k)) for config in configs}) > 1
    ]
    usual = lambda k: isinstance(my[k], (str, bool)) and my[k] == mine.public()[k].default
    shown = [f"{k}={_text(my[k])}" for k in differing if not usual(k)]
    return f" ({', '.join(shown)})" if shown else ""
