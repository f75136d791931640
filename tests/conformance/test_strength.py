"""The coupling's two ends: strength → 0 is Local, strength → ∞ is consensus (where the method
couples at all).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import METHODS, Federation, Method, Result
from coterie.engine.exchange import exchange_of
from tests.support.conformance_cases import NAMES, flat_models, samples_cohorts, small, uneven_graph

COUPLED = [name for name in NAMES if METHODS[name].strength]
EXACT: dict[str, Any] = {"rounds": 50, "eval_every": 50, "sampling": "full", "precision": "float64"}


@pytest.fixture(scope="module")
def linear() -> Federation:
    return coterie.load("linear", clients=4, samples=6, dimension=3, scale=1.0, scale_last=2.0)


def run(method: Method, linear: Federation, **options: Any) -> Result:
    graph = uneven_graph(4) if exchange_of(method).kind == "graph" else None
    return coterie.simulate(method, linear, "linear", graph=graph, **{**EXACT, **options})


def spread(result: Result) -> float:
    """The largest distance of a client's coupled part (P x where there is a P) from the mean."""
    x = flat_models(result)
    drawn = getattr(result.method, "drawn", None)
    if drawn is not None:
        x = x @ np.concatenate([np.asarray(p) for p in drawn.parts], axis=1).T
    return float(np.linalg.norm(x - x.mean(0), axis=1).max())


@pytest.mark.parametrize("name", COUPLED)
def test_strength_zero_is_local_at_equal_compute(name: str, linear: Federation) -> None:
    # pFedMe restarts θ from the received w unless told to keep it; without coupling w never moves,
    # so only "memory" can be Local.
    more = {"inner_start": "last"} if "inner_start" in METHODS[name].public() else {}
    method = small(
        name,
        **{METHODS[name].strength: 0.0},
        **more,
        **({"dsub": 2} if "dsub" in METHODS[name].public() else {}),
    )
    cohort = {"cohort": 2} if samples_cohorts(method) else {}
    alone = run(coterie.equal_compute(method), linear, **cohort)
    free = run(method, linear, **cohort)
    np.testing.assert_allclose(flat_models(free), flat_models(alone), rtol=1e-12)
    assert free.ledger.gradients == alone.ledger.gradients
    assert spread(alone) > 0.1
    coupled = run(method.replace(**{method.strength: 0.5}), linear, **cohort)
    assert not np.allclose(flat_models(coupled), flat_models(alone), rtol=1e-3), (
        "the strength does nothing"
    )


def strong(name: str, s: float) -> Method:
    """The method at strength s with steps inside its stability conditions: they must shrink like
    1/s, and for p = 1 like 1/s².
    """
    public, more = METHODS[name].public(), {}
    if "personal_lr" in public:
        power = 2 if name == "lp-proj-1" else 1
        more = {
            "lam": s,
            "lr": (0.04 if name == "lp-proj-1" else 0.4) / s**power,
            "personal_lr": 0.4 / s**power,
        }
    elif "local_steps" in public:
        more = {METHODS[name].strength: s, "lr": 0.02 / s}
    if "dsub" in public:
        more["dsub"] = 2
    return small(name, **more)


# The L1 norm is exact at a finite strength and its signs jitter, so no distance shrinks like
# 1/strength (see below, and test_rsa.py).
@pytest.mark.parametrize("name", [n for n in COUPLED if n not in ("lp-proj-1", "rsa")])
def test_infinite_strength_is_consensus(name: str, linear: Federation) -> None:
    weak, strong_ = run(strong(name, 1e2), linear), run(strong(name, 1e4), linear)
    assert all(c.holds for c in weak.simulator.conditions() + strong_.simulator.conditions())
    # Distances from consensus are −∇f_k/strength to first order: 100 times the strength, a
    # hundredth of the distance.
    assert spread(strong_) < 2e-4
    assert spread(weak) / spread(strong_) == pytest.approx(100, rel=0.1)


def test_l1_coupling_reaches_consensus_at_finite_strength(linear: Federation) -> None:
    """λ‖·‖₁ with λ above every gradient holds P x_k at w̃ exactly; what is left is the sign's
    jitter, of the size personal_lr·λ.

    A coordinate of P x jumps by at most personal_lr·λ·Σ_j |⟨p_i, p_j⟩| ≤ 2 jitters, and the
    clients' own w̃_{k,R} are at most R·lr·λ = 1 jitter off: (2 + 1)·√2 for two coordinates, and
    somebody else's as much on the other side of the mean.
    """
    method = strong("lp-proj-1", 100.0).replace(local_rounds=10, inner_steps=60)
    held, alone = run(method, linear), run(coterie.equal_compute(method), linear)
    jitter = 0.4 / 100.0
    assert spread(held) < 6 * jitter
    x = flat_models(alone)
    assert np.linalg.norm(x - x.mean(0), axis=1).max() > 20 * jitter, (
        "Local must have had the time to drift apart"
    )


@pytest.mark.parametrize("name", [n for n in NAMES if METHODS[n]().model_views == ("global",)])
def test_methods_with_one_model_for_all_give_everybody_that_model(
    name: str, linear: Federation
) -> None:
    models = flat_models(run(small(name), linear))
    assert (models == models[0]).all()
    assert np.abs(models).max() > 0.1
