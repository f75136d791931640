"""What shells complete besides commands and options: names of methods, data sets and the like."""

from __future__ import annotations

from collections.abc import Callable


def names_of(*kinds: str) -> Callable[[str], list[str]]:
    """A function that gives the names of these kinds that begin with what is typed so far."""

    def complete(incomplete: str) -> list[str]:
        from coterie.cli.look import registries

        groups = registries()
        known = [name for kind in kinds or groups for name in groups[kind]]
        return sorted({name for name in known if name.startswith(incomplete)})

    return complete


def kinds(incomplete: str) -> list[str]:
    """What `coterie list` takes."""
    from coterie.cli.look import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]
