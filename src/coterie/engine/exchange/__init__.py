"""What a round is, one class per kind of exchange."""

from __future__ import annotations

from coterie.engine.exchange.alone import Alone
from coterie.engine.exchange.base import Exchange
from coterie.engine.exchange.graph import Graph
from coterie.engine.exchange.pooled import Pooled
from coterie.engine.exchange.star import Star
from coterie.methods.base import Method, PooledMethod
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod

_KINDS: tuple[tuple[type[Method], Exchange], ...] = (
    (StarMethod, Star()),
    (GraphMethod, Graph()),
    (PooledMethod, Pooled()),
)
_ALONE = Alone()


def exchange_of(method: Method) -> Exchange:
    """How the clients of a method exchange messages."""
    return next((made for kind, made in _KINDS if isinstance(method, kind)), _ALONE)


__all__ = ["Alone", "Exchange", "Graph", "Pooled", "Star", "exchange_of"]
