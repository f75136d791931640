"""The registry of data sources: a source is a declared group of options with a `load(seed)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from coterie.core.options import Options, chosen, registered
from coterie.data.federation import Federation

SOURCES: dict[str, type[Source]] = {}
S = TypeVar("S", bound="Source")


class Source(Options):
    """Where a federation comes from. Subclasses declare options and implement `load`."""

    summary: ClassVar[str] = ""

    def load(self, seed: int) -> Federation:
        raise NotImplementedError


def source(name: str) -> Callable[[type[S]], type[S]]:
    """Register a Source under a name, for TOML and the command line."""
    return registered(SOURCES, name)


def get_source(name: str, options: dict[str, Any] | None = None) -> Source:
    return chosen(SOURCES, "the data set", name, options)
