"""Whether an experiment's step sizes can work, before it runs: smoothness, ‖L‖ and ‖P‖ are
measured, and every condition is said in plain words, with a value that is safe.

"Smoothness" is what FedU calls β and pFedMe L: the largest curvature of clients' losses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coterie.coupling.learnt.base import GraphRule
from coterie.engine.simulator import Simulator
from coterie.engine.smoothness import Smoothness, smoothness
from coterie.methods import theorems
from coterie.methods.base import Condition
from coterie.methods.conditions import rate
from coterie.methods.fedu import DFedU, FedU, Laplacian
from coterie.methods.lpproj import LpProjBase
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
    beyond: tuple[str, ...] = ()
    """What the theorems say nothing about, a sentence each."""

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
        return [*told, *self.beyond]


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
        empty = getattr(contender.method, "empty", None)
        same = sim.spec.learner, contender.method.l2, empty  # the same losses
        if same not in known:
            known[same] = smoothness(sim)
        found.append(checked(label, sim, known[same], learnt=isinstance(graph, GraphRule)))
    return found


def checked(label: str, sim: Simulator, smooth: Smoothness, *, learnt: bool = False) -> Checked:
    """A simulator that has not run yet, whose losses are so smooth."""
    rho = None if sim.graph is None or learnt else sim.graph.laplacian_norm
    verdicts = [Verdict(c, True, _scaled(c)) for c in sim.conditions()]
    with sim.precision():
        verdicts += _descents(sim, smooth.beta) + _assumptions(sim, smooth.beta, rho)
    return Checked(label, smooth, rho, verdicts, _beyond(sim))


def _scaled(condition: Condition) -> str:
    """How much smaller what is multiplied must be."""
    times = condition.value / condition.bound / SAFE
    return f"Make one of its factors {times:.3g} times smaller."


def _descents(sim: Simulator, beta: float) -> list[Verdict]:
    """Gradient descent is stable below 2 over the largest curvature, with momentum below less."""
    out = []
    for option, lr, more, bound in sim.method.descents(sim.template):
        steep = beta + float(more)
        text = f"{option}·smoothness" if not more else f"{option}·(smoothness + strength)"
        below = float(bound)
        condition = Condition(f"{text} (stability of gradient steps)", float(lr) * steep, below)
        out.append(Verdict(condition, True, f"Take {option} ≤ {below * SAFE / steep:.3g}."))
    return out


def _assumptions(sim: Simulator, beta: float, rho: float | None) -> list[Verdict]:
    """What the papers' theorems assume."""
    method, convex = sim.method, _convexity(sim)
    if isinstance(method, FedU | DFedU) and method.pulls_linearly and rho:
        return _of_fedu(sim, method, beta, convex, rho)
    if isinstance(method, PFedMe) and _largest(method.lam):
        return _of_envelope(sim, method, beta, convex)
    if isinstance(method, LpProjBase) and method.p == 2 and _largest(method.lam):
        norm = method.squared_norm_of_p(sim.template)
        return _of_envelope(sim, method, beta, convex, norm)
    return []


def _convexity(sim: Simulator) -> float:
    """How strongly convex clients' losses are at least: l2, where the model is linear; 0 where
    nothing is known.
    """
    tree = sim.template.tree
    linear = isinstance(tree, dict) and set(tree) <= {"w", "b"}
    return float(sim.model.l2) + float(sim.method.l2) if linear else 0.0


def _largest(value: Any) -> float:
    """Of a rate that may be a schedule."""
    return float(np.max(rate(value)))


def _assumed(text: str, value: float, advice: str = "") -> Verdict:
    return Verdict(Condition(text, value, 1.0), False, advice)


def _steps(sim: Simulator, given: int) -> int:
    """R of the client that takes the most steps: `given`, or as many epochs."""
    if getattr(sim.method, "local_epochs", None) is None:
        return given
    return given * int(-(-sim.federation.train.sizes.max() // sim.spec.learner.batch_size))


def _of_fedu(
    sim: Simulator, method: Laplacian, beta: float, convex: float, rho: float
) -> list[Verdict]:
    strength = _largest(method.eta) * rho
    if not strength:
        return []
    least = f"η > {2 * beta / rho:.3g} would do; Theorem 1 holds without it."
    text = "2·smoothness/(ηρ) (FedU's theorems assume ηρ > 2·smoothness)"
    out = [_assumed(text, 2 * beta / strength, least)]
    alike = method.mix_lr is None
    steps = _steps(sim, method.R)
    step = _largest(method.lr) * steps if alike else _largest(method.mix_lr)
    bounds = {"2, losses that need not be convex": theorems.fedu_smooth(beta, strength)}
    if convex:
        bounds["1, strongly convex losses"] = theorems.fedu_convex(beta, convex, strength)
    for name, most in bounds.items():
        out.append(
            _assumed(
                f"μ̃/{most:.3g} (FedU's Theorem {name}; μ̃ = lr·R)",
                step / most,
                f"It is proved up to μ̃ = {most:.3g}.",
            )
        )
    return out


def _of_envelope(
    sim: Simulator, method: PFedMe | LpProjBase, beta: float, convex: float, norm: float = 1.0
) -> list[Verdict]:
    lam, gain = _largest(method.lam), _largest(method.beta)
    if isinstance(method, PFedMe):
        least, text = (8 * beta**2 + 1) ** 0.5, "√(8·smoothness² + 1)"
        smooth, title, at = theorems.pfedme_smooth(lam), "pFedMe", ("1", "2")
        strong = theorems.pfedme_convex
    else:
        least = max((10 * beta**2 + 1) ** 0.5, 4 * beta)
        text = "max(√(10·smoothness² + 1), 4·smoothness)"
        smooth, title, at = theorems.lp_proj_smooth(lam), "lp-proj", ("9", "13")
        strong = theorems.lp_proj_convex
    nonconvex = f"{title}'s Theorem {at[1]}, losses that need not be convex"
    out = [_assumed(f"{text}/λ ({nonconvex})", least / lam, f"λ > {least:.3g} would do.")]
    bounds = {nonconvex: smooth}
    if convex:
        mu = theorems.envelope_convexity(lam, convex, norm)
        bounds[f"{title}'s Theorem {at[0]}, strongly convex losses"] = strong(lam, mu, gain)
    R = _steps(sim, method.R if isinstance(method, PFedMe) else method.local_rounds)
    step = _largest(method.lr) * gain * R
    for name, most in bounds.items():
        proved = f"It is proved up to lr·β·R = {most:.3g}."
        out.append(_assumed(f"lr·β·R/{most:.3g} ({name})", step / most, proved))
    return out


def _beyond(sim: Simulator) -> tuple[str, ...]:
    """Options that the papers' theorems do not have."""
    method, told = sim.method, []
    if isinstance(method, Laplacian) and method.edge_penalty == "norm":
        told.append(
            'edge_penalty is "norm": its pulls are bounded, so no step makes them unstable, but'
            " they jitter by μ̃·η; let lr fall. FedU's theorems are about squared differences."
        )
    elif isinstance(method, Laplacian) and not method.pulls_linearly:
        told.append("FedU's theorems are about the sum of squared differences, not this pull.")
    if isinstance(method, Laplacian) and method.empty is not None:
        told.append(
            f"Client {method.empty} has no loss: FedU's Theorem 1 assumes that every loss is"
            " strongly convex."
        )
    if isinstance(method, FedU) and not method.hears_all and sim.spec.cohort < sim.spec.clients:
        told.append(
            'neighbours is "sampled" and not all clients are: FedU\'s theorems are about "all".'
        )
    if isinstance(method, LpProjBase) and method.p != 2:
        told.append("lp-proj's theorems are about p = 2.")
    return tuple(told)
