"""What was found around a comparison: models off the shelf, and what would change the answer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.report.significance import Tested

if TYPE_CHECKING:
    from coterie.report.comparison import Comparison


@dataclasses.dataclass(frozen=True)
class ReferenceRow:
    """A model off the shelf, as a row of the table."""

    label: str
    pooled: bool
    """Fitted on all data in one place, not at each client."""
    scores: NDArray[Any]
    """Of every client on its test rows, larger is better; NaN without any."""

    def mean(self, comparison: Comparison) -> float:
        return comparison.mean(self.scores)

    def to_config(self) -> dict[str, Any]:
        scores = [None if np.isnan(s) else float(s) for s in self.scores]
        return {"label": self.label, "pooled": self.pooled, "scores": scores}

    @classmethod
    def from_config(cls, given: dict[str, Any]) -> ReferenceRow:
        scores = np.array([np.nan if s is None else s for s in given["scores"]], float)
        return cls(given["label"], given["pooled"], scores)


class LeftOut(NamedTuple):
    """What the others gain when one client is left out: against training with it, and over training
    alone.
    """

    client: int
    against_with: Tested
    over_local: Tested


@dataclasses.dataclass(frozen=True)
class Findings:
    """What would change the answer, measured on validation rows."""

    unlike: tuple[LeftOut, ...] = ()
    whole: Tested | None = None
    """The gain of the chosen method as it is."""
    half: Tested | None = None
    """Its gain with half of the training rows of every client."""
    graphs: tuple[tuple[str, Tested], ...] = ()
    """FedU's gain over other graphs."""
    hungry: tuple[tuple[int, float], ...] | None = None
    """Clients that alone clearly do better with all of their rows than with half of them, and by
    how much, the largest first; None: not looked at.
    """
    cut: tuple[str, ...] = ()
    """What there was no time for."""

    def to_config(self) -> dict[str, Any]:
        plain = lambda t: None if t is None else dataclasses.asdict(t)
        return {
            "unlike": [[u.client, plain(u.against_with), plain(u.over_local)] for u in self.unlike],
            "whole": plain(self.whole),
            "half": plain(self.half),
            "graphs": [[kind, plain(tested)] for kind, tested in self.graphs],
            "hungry": None if self.hungry is None else [list(one) for one in self.hungry],
            "cut": list(self.cut),
        }

    @classmethod
    def from_config(cls, given: dict[str, Any]) -> Findings:
        tested = lambda t: None if t is None else Tested(**t)
        return cls(
            tuple(LeftOut(k, Tested(**a), Tested(**b)) for k, a, b in given["unlike"]),
            tested(given["whole"]),
            tested(given["half"]),
            tuple((kind, Tested(**t)) for kind, t in given["graphs"]),
            None if given["hungry"] is None else tuple((k, m) for k, m in given["hungry"]),
            tuple(given.get("cut", ())),
        )
