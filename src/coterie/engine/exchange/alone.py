"""Alone: every client trains by itself; nothing is sent."""

from __future__ import annotations

from coterie.engine.exchange.base import Exchange


class Alone(Exchange):
    """The round of `Exchange` as it is."""
