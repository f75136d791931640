"""Whether an experiment's step sizes can work, before it runs: smoothness, ‖L‖ and ‖P‖ are
measured, and every condition is said in plain words, with a value that is safe.

"Smoothness" is what FedU calls β and pFedMe L: the largest curvature of clients' losses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coterie.coupling.learnt.base import GraphRule
from coterie.engine.simulator import Simulator
from coterie.engine.smoothness import Smoothness, smoothness
from coterie.methods.base import Condition
from coterie.methods.fedu import Laplacian
from coterie.methods.pfedme import PFedMe
from coterie.runs.experiment import Experiment
from coterie.runs.labels import label_of

SAFE = 0.5
"""What is suggested is this share of what just holds."""


class Verdict(NamedTuple):
    """A condition of a method, and what to do where it does not hold."""

    condition: Condition
    needed: bool
    """Whether a run is unstable without it; a theorem's assumption otherwise."""
    advice: str = ""

    @property
    def holds(self) -> bool:
        return self.condition.holds


class Checked(NamedTuple):
    """A method of an experiment."""

    label: str
    smooth: Smoothness
    laplacian: float | None
    verdicts: list[Verdict]

    @property
    def stable(self) -> bool:
        return all(v.holds for v in self.verdicts if v.needed)

    def sentences(self) -> list[str]:
        """What was measured, and what follows."""
        count = len(self.smooth.clients)
        low, high = self.smooth.first.min(), self.smooth.beta
        told = [f"Smoothness of {count} clients' losses: {low:.3g} to {high:.3g}."]
        if self.laplacian is not None:
            told.append(f"Largest eigenvalue of the graph's Laplacian: ρ = {self.laplacian:.3g}.")
        for v in self.verdicts:
            if v.holds:
                told.append(
                    f"Holds: {v.condition.text} = {v.condition.value:.3g},"
                    f" below {v.condition.bound:g}."
                )
            else:
                what = "Unstable" if v.needed else "A theorem's assumption does not hold"
                told.append(f"{what}: {v.condition}. {v.advice}".rstrip())
        return told


def check_experiment(experiment: Experiment) -> list[Checked]:
    """Every method of an experiment, at its first seed."""
    seeds = experiment.seeds or (experiment.training.seed,)
    found: list[Checked] = []
    known: dict[Any, Smoothness] = {}
    for contender in experiment.contenders:
        single = experiment.single(contender, seeds[0])
        fed = single.federation()
        graph = single.graph.build(fed) if contender.method.couples else None
        sim = Simulator(
            contender.method, fed, single.model, single.training, graph, channel=contender.channel
        )
        others = [c for c in experiment.contenders if c is not contender]
        label = label_of(contender, [contender, *others])
        same = sim.spec.learner, contender.method.l2  # the same losses
        if same not in known:
            known[same] = smoothness(sim)
        found.append(checked(label, sim, known[same], learnt=isinstance(graph, GraphRule)))
    return found


def checked(label: str, sim: Simulator, smooth: Smoothness, *, learnt: bool = False) -> Checked:
    """A simulator that has not run yet, whose losses are so smooth."""
    rho = None if sim.graph is None or learnt else sim.graph.laplacian_norm
    verdicts = [Verdict(c, True, _scaled(c)) for c in sim.conditions()]
    return Checked(
        label,
        smooth,
        rho,
        [*verdicts, *_descents(sim, smooth.beta), *_assumptions(sim, smooth.beta, rho)],
    )


def _scaled(condition: Condition) -> str:
    """How much smaller what is multiplied must be."""
    times = condition.value / condition.bound / SAFE
    return f"Make one of its factors {times:.3g} times smaller."


def _descents(sim: Simulator, beta: float) -> list[Verdict]:
    """Gradient descent is stable below 2 over the largest curvature."""
    out = []
    for option, lr, more in sim.method.descents(sim.template):
        steep = beta + float(more)
        text = f"{option}·smoothness" if not more else f"{option}·(smoothness + strength)"
        condition = Condition(f"{text} (stability of gradient steps)", float(lr) * steep, 2.0)
        out.append(Verdict(condition, True, f"Take {option} ≤ {2 * SAFE / steep:.3g}."))
    return out


def _assumptions(sim: Simulator, beta: float, rho: float | None) -> list[Verdict]:
    """What the papers' theorems assume."""
    method, out = sim.method, []
    if isinstance(method, Laplacian) and rho:
        eta = float(method.eta) if isinstance(method.eta, float) else 0.0
        if eta:
            text = "2·smoothness/(ηρ) (FedU's theorems assume ηρ > 2·smoothness)"
            least = f"η > {2 * beta / rho:.3g} would do; Theorem 1 holds without it."
            out.append(Verdict(Condition(text, 2 * beta / (eta * rho), 1.0), False, least))
    if isinstance(method, PFedMe) and isinstance(method.lam, float) and method.lam:
        text = "2·smoothness/λ (pFedMe's theorem for nonconvex losses assumes λ > 2·smoothness)"
        condition = Condition(text, 2 * beta / method.lam, 1.0)
        out.append(Verdict(condition, False, f"λ > {2 * beta:.3g} would do."))
    return out
