"""Network Lasso on a client graph, against its optimality conditions and an ADMM of our own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, InvalidInput, get_method
from coterie.coupling import merges, penalty
from tests.support import quadratics
from tests.support.quadratics import D, N, facts, models, run

FALLING = {"kind": "inverse-time", "scale": 4.0, "shift": 12.0}
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def linear() -> Federation:
    return quadratics.linear()


def path() -> Graph:
    a = np.diag([0.5, 2.0, 1.0], 1)
    return coterie.graph.from_matrix(a + a.T)


def admm(b: Floats, best: Floats, a: Floats, eta: float) -> tuple[Floats, dict[Any, Floats]]:
    """min Σ (b_k/2)‖w_k − ŵ_k‖² + η Σ_{k<l} a_kl ‖w_k − w_l‖, and a subgradient of every edge:
    z_kl = w_k − w_l is shrunk towards 0 by its length (Hallac, Leskovec, Boyd 2015).
    """
    edges = [(k, l) for k in range(N) for l in range(k + 1, N) if a[k, l]]
    difference = np.zeros((len(edges), N))
    for i, (k, l) in enumerate(edges):
        difference[i, k], difference[i, l] = 1, -1
    z = np.zeros((len(edges), D))
    dual = np.zeros_like(z)
    left = np.diag(b[:, 0]) + difference.T @ difference
    price = eta * np.array([a[e] for e in edges])[:, None]
    for _ in range(20_000):
        w = np.linalg.solve(left, b * best + difference.T @ (z - dual))
        v = difference @ w + dual
        length = np.linalg.norm(v, axis=1, keepdims=True)
        z = np.maximum(0, 1 - price / np.maximum(length, 1e-300)) * v
        dual = v - z
    return w, dict(zip(edges, dual / price, strict=True))


@pytest.mark.parametrize("name", ["fedu", "dfedu"])
@pytest.mark.parametrize("eta", [0.1, 0.5])
def test_falling_steps_reach_what_admm_finds(name: str, eta: float, linear: Federation) -> None:
    """With η = 0.1 nobody is held together, with 0.5 some neighbours are equal and some are not.

    The subgradients that ADMM leaves prove that it is the solution: b_k(w_k − ŵ_k) + η Σ a_kl u_kl
    = 0 with ‖u_kl‖ ≤ 1, and u_kl = (w_k − w_l)/‖w_k − w_l‖ where these differ.
    """
    b, best = facts(linear)
    a = path().weights.toarray()
    wanted, units = admm(b, best, a, eta)
    residual = b * (wanted - best)
    apart = []
    for (k, l), u in units.items():
        residual[k] += eta * a[k, l] * u
        residual[l] -= eta * a[k, l] * u
        gap = wanted[k] - wanted[l]
        assert np.linalg.norm(u) <= 1 + 1e-9
        apart.append(bool(np.linalg.norm(gap) > 1e-6))
        if apart[-1]:
            np.testing.assert_allclose(u, gap / np.linalg.norm(gap), atol=1e-9)
    np.testing.assert_allclose(residual, 0, atol=1e-9)
    assert all(apart) if eta == 0.1 else (any(apart) and not all(apart))

    method = get_method(name, {"edge_penalty": "norm", "eta": eta, "lr": FALLING, "local_steps": 1})
    found = models(run(method, linear, 10_000, path()))
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    assert np.abs(wanted - best).max() > 0.02, "the coupling must matter"


def test_clipping_is_the_same_smoothed(linear: Federation) -> None:
    """Differences cut to the length ε, at strength η/ε, are the penalty with a rounded tip: equal
    where all differ by more than ε.
    """
    steps = {"lr": 0.02, "local_steps": 1}
    norm = get_method("fedu", {"edge_penalty": "norm", "eta": 0.1, **steps})
    cut = get_method("fedu", {"mixing": "clipping", "clip": 1e-3, "eta": 100.0, **steps})
    a, b = (models(run(m, linear, 2000, path())) for m in (norm, cut))
    np.testing.assert_allclose(a, b, rtol=1e-9)
    gaps = [np.linalg.norm(a[k] - a[k + 1]) for k in range(N - 1)]
    assert min(gaps) > 1e-3


def test_the_pull_is_the_derivative_of_the_lengths() -> None:
    rng = np.random.default_rng(0)
    own, others, weights = rng.normal(size=5), rng.normal(size=(3, 5)), np.array([0.5, 0.0, 2.0])
    price = lambda x: float(weights @ np.linalg.norm(x - others, axis=1))
    h = 1e-6
    wanted = [(price(own + h * e) - price(own - h * e)) / (2 * h) for e in np.eye(5)]
    with jax.enable_x64(True):
        split = lambda v: {"a": jnp.asarray(v[..., :2]), "b": jnp.asarray(v[..., 2:])}
        got = penalty.unit_pull(split(own), split(others), weights)
        both = np.concatenate([np.asarray(got["a"]), np.asarray(got["b"])])
        np.testing.assert_allclose(both, wanted, rtol=1e-6)
        same = penalty.unit_pull(split(own), split(own[None]), np.ones(1))
        assert not np.asarray(same["a"]).any(), "who is where I am does not pull"
        small = merges.robust_pull("clipping", own, others, weights, 2.0, clip=1e-3)
        np.testing.assert_allclose(small / 1e-3, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("fedu", {"mixing": "median"}, "edge_penalty is 'norm', but mixing is 'median'"),
        ("graph-proj", {"p": 1.0}, "the exponent 1; it needs"),
        ("fedu", {"implicit": True}, "implicit is true, but edge_penalty is 'norm'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    name: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        get_method(name, {"edge_penalty": "norm", **options})
