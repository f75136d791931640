"""Several methods on the same clients, batches and seeds, side by side: is each better than
training alone, for whom, and at what price?
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import Federation
from coterie.engine.exchange import exchange_of
from coterie.report.outcome import Outcome
from coterie.report.units import bytes_text, score_number

Array = NDArray[Any]
BOOTSTRAPS = 2000


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean ± standard deviation over seeds."""

    mean: float
    std: float
    count: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        a = np.asarray(values, float)
        return cls(float(a.mean()), float(a.std(ddof=1)) if len(a) > 1 else 0.0, len(a))


@dataclasses.dataclass(frozen=True)
class Gain:
    """Score minus that of Local at equal gradient steps, client by client and seed by seed."""

    mean: float
    low: float
    high: float
    share_gaining: float
    largest_loss: float
    worst_client: int
    per_client: tuple[float, ...]

    @classmethod
    def of(cls, differences: Array, seed: int = 0) -> Gain:
        """From an array (seeds, clients); the 95% interval is a paired bootstrap over seeds and
        clients.
        """
        has = ~np.isnan(differences).any(0)
        d = differences[:, has]
        rng = np.random.default_rng([seed, 0xB007])
        seeds = rng.integers(0, d.shape[0], (BOOTSTRAPS, d.shape[0]))
        clients = rng.integers(0, d.shape[1], (BOOTSTRAPS, d.shape[1]))
        # The mean over the resampled seeds and clients, without an array of all three sizes.
        counts = np.zeros((BOOTSTRAPS, d.shape[0]))
        np.add.at(counts, (np.arange(BOOTSTRAPS)[:, None], seeds), 1.0 / d.shape[0])
        weights = np.zeros((BOOTSTRAPS, d.shape[1]))
        np.add.at(weights, (np.arange(BOOTSTRAPS)[:, None], clients), 1.0 / d.shape[1])
        means = np.einsum("bs,sc,bc->b", counts, d, weights, optimize=True)
        low, high = np.quantile(means, [0.025, 0.975])
        each = np.full(differences.shape[1], np.nan)
        each[has] = d.mean(0)
        worst = int(np.nanargmin(each))
        return cls(
            float(d.mean()),
            float(low),
            float(high),
            float((d.mean(0) > 0).mean()),
            float(np.nanmin(each)),
            worst,
            tuple(each.tolist()),
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a method's view, over all seeds."""

    label: str
    view: str
    mean: Spread
    weighted: Spread
    worst: Spread
    variance: Spread
    gain: Gain | None
    up: float
    down: float
    seconds: float
    compile_seconds: float
    collapsed: str | None = None
    collapsed_at: int | None = None
    poor: Spread | None = None
    """The mean over clients that were down-sampled."""
    newcomers: Spread | None = None
    """The view's score on clients that were held out, after adapting."""
    predicted: Spread | None = None
    """Seconds that all rounds would take on the network of the experiment."""


def worst_tenth(scores: Array) -> float:
    """Mean of the lowest tenth of the clients (at least one)."""
    s = np.sort(scores[~np.isnan(scores)])
    return float(s[: max(1, -(-len(s) // 10))].mean())


def weighted(scores: Array, samples: Array) -> float:
    has = ~np.isnan(scores)
    return float(np.average(scores[has], weights=samples[has]))


@dataclasses.dataclass
class Entry:
    """A method in the comparison: its outcomes by seed, and the Local that it is measured
    against.
    """

    label: str
    outcomes: list[Outcome]
    local: list[Outcome] | None

    @property
    def collapsed(self) -> str | None:
        return next((o.collapsed for o in self.outcomes if o.collapsed), None)


@dataclasses.dataclass
class Comparison:
    """All entries on one federation."""

    title: str
    federation: Federation
    entries: list[Entry]
    score_name: str = "accuracy"

    def rows(self) -> list[Row]:
        rows = []
        for entry in self.entries:
            first = entry.outcomes[0]
            for view in first.method.model_views:
                scores = [o.last(view) for o in entry.outcomes]
                gain = None
                if (
                    entry.local is not None
                    and entry.local is not entry.outcomes
                    and not entry.collapsed
                ):
                    gain = Gain.of(
                        np.stack([s - lo.last() for s, lo in zip(scores, entry.local, strict=True)])
                    )
                several = len(first.method.model_views) > 1
                rows.append(
                    Row(
                        label=f"{entry.label} ({view})" if several else entry.label,
                        view=view,
                        mean=Spread.over([float(np.nanmean(s)) for s in scores]),
                        weighted=Spread.over(
                            [
                                weighted(s, o.samples)
                                for s, o in zip(scores, entry.outcomes, strict=True)
                            ]
                        ),
                        worst=Spread.over([worst_tenth(s) for s in scores]),
                        variance=Spread.over([float(np.nanvar(s)) for s in scores]),
                        gain=gain,
                        up=float(np.mean([o.up[-1] for o in entry.outcomes])),
                        down=float(np.mean([o.down[-1] for o in entry.outcomes])),
                        seconds=float(np.mean([o.seconds for o in entry.outcomes])),
                        compile_seconds=float(np.mean([o.compile_seconds for o in entry.outcomes])),
                        collapsed=entry.collapsed,
                        collapsed_at=next(
                            (o.collapsed_at for o in entry.outcomes if o.collapsed), None
                        ),
                        poor=(
                            Spread.over(
                                [
                                    float(np.nanmean(s[list(o.poor)]))
                                    for s, o in zip(scores, entry.outcomes, strict=True)
                                ]
                            )
                            if first.poor
                            else None
                        ),
                        newcomers=(
                            Spread.over([o.newcomers[view] for o in entry.outcomes])
                            if all(o.newcomers for o in entry.outcomes)
                            else None
                        ),
                        predicted=(
                            Spread.over(
                                [
                                    float(o.predicted[-1])
                                    for o in entry.outcomes
                                    if o.predicted is not None
                                ]
                            )
                            if first.predicted is not None
                            else None
                        ),
                    )
                )
        return rows

    def majority(self) -> float | None:
        """What always answering a client's most frequent class would score, mean over clients."""
        return (
            float(np.nanmean(self.federation.majority_score()))
            if self.federation.task == "classification"
            else None
        )

    def client_name(self, k: int) -> str:
        """A client as its owner calls it."""
        names = self.federation.facts.get("clients")
        return (
            str(names[k])
            if names is not None and len(names) == self.federation.clients
            else f"client {k}"
        )

    def answer(self) -> str:
        """In one paragraph: does federating help, whom, whom does it hurt, and what does it cost?
        The method is chosen on validation data.
        """
        unit, name = (100.0, " points") if self.score_name == "accuracy" else (1.0, "")
        federated = [
            e
            for e in self.entries
            if e.local is not None and e.local is not e.outcomes and not e.collapsed
        ]
        federated = [e for e in federated if exchange_of(e.outcomes[0].method).sends]
        if not federated:
            return (
                "No federated method ran to its end, so there is nothing to say about federating."
            )
        validated = all(e.outcomes[0].validation is not None for e in federated)
        judge = lambda e: np.mean(
            [o.validation if validated else float(np.nanmean(o.last())) for o in e.outcomes]
        )
        best = max(federated, key=judge)
        assert best.local is not None
        differences = np.stack(
            [o.last() - lo.last() for o, lo in zip(best.outcomes, best.local, strict=True)]
        )
        gain = Gain.of(differences)
        each = np.array(gain.per_client)
        order = np.argsort(each)
        helped = [self.client_name(int(k)) for k in order[::-1] if each[k] > 0]
        hurt = [self.client_name(int(k)) for k in order if each[k] < 0]
        n = int((~np.isnan(each)).sum())
        mine = score_number(float(np.mean([np.nanmean(o.last()) for o in best.outcomes])), unit)
        alone = score_number(float(np.mean([np.nanmean(o.last()) for o in best.local])), unit)
        mean, low, high = (
            score_number(v, unit, signed=True) for v in (gain.mean, gain.low, gain.high)
        )
        cost = np.mean([(o.up[-1] + o.down[-1]) / self.federation.clients for o in best.outcomes])
        verdict = (
            "Federating helps"
            if gain.low > 0
            else "Federating hurts"
            if gain.high < 0
            else "Federating makes no clear difference"
        )

        def some(names: list[str]) -> str:
            return f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""

        return (
            f"{verdict}: {best.label}, the best of {len(federated)} methods on"
            f" {'validation' if validated else 'test'} data, scores {mine} on test data against"
            f" {alone} for training alone with equal gradient steps, {mean}{name} (95% interval"
            f" {low} to {high}). It helps {len(helped)} of {n} clients{some(helped)} and hurts"
            f" {len(hurt)}{some(hurt)}; the others are unchanged. It costs each client"
            f" {bytes_text(float(cost))} in all, sent and received."
        )

    def verdict(self) -> list[str]:
        """In words: does federating help, and whom does it hurt?"""
        unit, name = (100.0, " points") if self.score_name == "accuracy" else (1.0, "")
        out = []
        for row in self.rows():
            g = row.gain
            if row.collapsed:
                out.append(f"{row.label}: collapsed ({row.collapsed})")
            elif g is not None:
                sure = (
                    "helps" if g.low > 0 else "hurts" if g.high < 0 else "makes no clear difference"
                )
                mean, low, high, loss = (
                    score_number(v, unit, signed=True)
                    for v in (g.mean, g.low, g.high, g.largest_loss)
                )
                out.append(
                    f"{row.label} {sure}: {mean}{name} against training alone with equal gradient"
                    f" steps (95% interval {low} to {high}); {g.share_gaining:.0%} of the clients"
                    f" gain, the largest loss is {loss} ({self.client_name(g.worst_client)})."
                )
        return out
