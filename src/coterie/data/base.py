"""The registry of data sources: a source is a declared group of options with a `load(seed)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from coterie.data.federation import Federation
from coterie.errors import unknown
from coterie.options import Options, traced_dataclass

SOURCES: dict[str, type[Source]] = {}
S = TypeVar("S", bound="Source")


class Source(Options):
    """Where a federation comes from. Subclasses declare options and implement `load`."""

    summary: ClassVar[str] = ""

    def load(self, seed: int) -> Federation:
        raise NotImplementedError


def source(name: str) -> Callable[[type[S]], type[S]]:
    """Register a Source under a name, for TOML and the command line."""

    def register(cls: type[S]) -> type[S]:
        cls.name = name
        cls.summary = (cls.__doc__ or "").strip().splitlines()[0]
        made: type[S] = traced_dataclass(cls)
        SOURCES[name] = made
        return made

    return register


def get_source(name: str, options: dict[str, Any] | None = None) -> Source:
    if name not in SOURCES:
        raise unknown("the data set", name, SOURCES)
    return SOURCES[name].from_config(options or {})
