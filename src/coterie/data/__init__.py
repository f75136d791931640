"""Federations: what each client has. One file per source; `partition` holds the splitting rules."""

from coterie.data import digits, linear, synthetic
from coterie.data.base import SOURCES, Source, get_source, source
from coterie.data.federation import Federation, Split, from_arrays, pack

__all__ = ["SOURCES", "Federation", "Source", "Split", "digits", "from_arrays", "get_source", "linear", "pack", "source", "synthetic"]
