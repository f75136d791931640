"""Every method reaches the solution that is known on paper (SPEC §6), in float64 with exact
gradients.

The data is `linear`: Ξ_kᵀΞ_k = n b_k I, so that f_k(x) = (b_k/2)‖x − ŵ_k‖² + const, with unequal
b_k.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, Method, Result
from coterie.core.vector import Vector
from coterie.coupling import penalty
from tests.support import quadratics
from tests.support.quadratics import D, N, facts, models, run


@pytest.fixture(scope="module")
def linear() -> Federation:
    return quadratics.linear()


def close(got: Any, expected: Any, rtol: float) -> None:
    """Relative to the size of the solution."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * float(np.abs(expected).max()))


def test_the_facts_of_the_data_are_its_least_squares_solutions(linear: Federation) -> None:
    b, best = facts(linear)
    assert len(set(b[:, 0])) == N
    for k in range(N):
        x, y = linear.train.client(k)
        np.testing.assert_allclose(x.T @ x, len(x) * b[k] * np.eye(D), atol=1e-10)
        np.testing.assert_allclose(best[k], np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-10)


def test_local_reaches_least_squares(linear: Federation) -> None:
    close(models(run(coterie.Local(lr=0.4, local_steps=5), linear, 50)), facts(linear)[1], 1e-10)


@pytest.mark.parametrize("steps", [1, 4])
def test_fedavg_reaches_its_fixed_point(steps: int, linear: Federation) -> None:
    """R steps on client k shrink its error by (1 − μb_k)^R; for R = 1 the fixed point is w^Avg = Σ
    b_k ŵ_k / Σ b_k.
    """
    b, best = facts(linear)
    lr = 0.3
    result = run(coterie.FedAvg(lr=lr, local_steps=steps, weighting="uniform"), linear, 200)
    share = 1 - (1 - lr * b) ** steps
    close(models(result), np.broadcast_to((share * best).sum(0) / share.sum(), (N, D)), 1e-10)
    if steps == 1:
        close(models(result)[0], (b * best).sum(0) / b.sum(), 1e-10)


def test_global_reaches_the_pooled_least_squares(linear: Federation) -> None:
    result = run(coterie.Global(lr=0.3, local_steps=2), linear, 100)
    close(models(result)[0], np.linalg.lstsq(linear.train.x, linear.train.y, rcond=None)[0], 1e-10)


@pytest.mark.parametrize("local_rounds", [1, 3])
@pytest.mark.parametrize("lam", [0.7, 5.0])
def test_pfedme_reaches_w_me_and_x_me(lam: float, local_rounds: int, linear: Federation) -> None:
    """∇F_k(w) = λ b_k/(b_k+λ) (w − ŵ_k): FedAvg on Moreau envelopes, so R local rounds move the
    fixed point as R steps do there.
    """
    b, best = facts(linear)
    lr = 0.3
    method = coterie.PFedMe(
        lam=lam, lr=lr, personal_lr=1.0 / (lam + 2.0), local_rounds=local_rounds, inner_steps=100
    )
    result = run(method, linear, 250)
    curvature = lam * b / (b + lam)
    share = 1 - (1 - lr * curvature) ** local_rounds
    w = (share * best).sum(0) / share.sum()
    close(models(result, "global")[0], w, 1e-9)
    if local_rounds == 1:
        w_me = (b / (b + lam) * best).sum(0) / (b / (b + lam)).sum()
        close(models(result, "global")[0], w_me, 1e-9)
        close(models(result, "personal"), (b * best + lam * w_me) / (b + lam), 1e-9)
        assert np.abs(w_me - (b * best).sum(0) / b.sum()).max() > 1e-3, (
            "w^Me and w^Avg must differ for this to mean something"
        )


@pytest.mark.parametrize("beta", [0.5, 1.6])
def test_beta_changes_the_speed_and_not_the_solution(beta: float, linear: Federation) -> None:
    b, best = facts(linear)
    result = run(coterie.FedAvg(lr=0.3, local_steps=1, weighting="uniform", beta=beta), linear, 250)
    close(models(result)[0], (b * best).sum(0) / b.sum(), 1e-9)


def matrix_of(result: Result) -> NDArray[np.float64]:
    method: Any = result.simulator.method
    with jax.enable_x64(True):
        rows = [method.drawn.back(row, method.shape).flat() for row in jnp.eye(method.dsub)]
    return np.stack(rows)


@pytest.mark.parametrize(("kind", "dimension"), [("orthogonal", D), ("srht", 4), ("srht", 12)])
def test_lp_proj_2_is_pfedme_inside_the_subspace_and_local_outside(
    kind: str, dimension: int
) -> None:
    """The srht has orthonormal rows where d is the order of a Hadamard matrix."""
    data = quadratics.linear(dimension=dimension)
    b, best = facts(data)
    lam = 1.5
    method = coterie.LpProj2(
        lam=lam,
        lr=0.3,
        personal_lr=0.25,
        local_rounds=1,
        inner_steps=60,
        dsub=2,
        projection=kind,
    )
    result = run(method, data, 250)
    p = matrix_of(result)
    np.testing.assert_allclose(p @ p.T, np.eye(2), atol=1e-14)
    share = b / (b + lam)
    w = (share * (best @ p.T)).sum(0) / share.sum()
    close(result.simulator.hub, w, 1e-9)
    inside = (b * (best @ p.T) + lam * w) / (b + lam)
    outside = best - best @ p.T @ p
    close(models(result), inside @ p + outside, 1e-9)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_lp_proj_for_any_p_is_stationary_at_its_fixed_point(p: float, linear: Federation) -> None:
    """b_k(x_k − ŵ_k) + λ Pᵀψ_p(Px_k − w̃) = 0 for every client and Σ_k ψ_p(w̃ − Px_k) = 0: both
    loops use the same p.
    """
    b, best = facts(linear)
    lam = 0.8
    method = coterie.LpProj(
        p=p,
        lam=lam,
        lr=0.2,
        personal_lr=0.2,
        local_rounds=1,
        inner_steps=60,
        dsub=2,
        projection="orthogonal",
    )
    result = run(method, linear, 1500)
    x, w, matrix = models(result), np.asarray(result.simulator.hub), matrix_of(result)
    psi = lambda v: np.sign(v) * np.abs(v) ** (p - 1)
    gap = x @ matrix.T - w
    np.testing.assert_allclose(b * (x - best) + lam * psi(gap) @ matrix, 0, atol=1e-5)
    np.testing.assert_allclose(psi(gap).sum(0), 0, atol=1e-4)
    assert np.abs(gap).max() > 0.1


def huber_location(
    points: NDArray[np.float64], thresholds: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The zero of Σ_k weight_k · clip(point_k − w, ±threshold_k) per coordinate, by bisection."""
    low, high = points.min(0), points.max(0)
    for _ in range(200):
        middle = (low + high) / 2
        positive = (weights * np.clip(points - middle, -thresholds, thresholds)).sum(0) > 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    return (low + high) / 2


def test_lp_proj_1_satisfies_its_subgradient_condition(linear: Federation) -> None:
    """min over x of (b/2)‖x − ŵ‖² + λ‖w̃ − Px‖₁ pulls Pŵ towards w̃ by at most λ/b; w̃ is then
    Huber's location of the Pŵ_k.

    Signs make both loops jitter by (step · λ), so the solution is met to that size and not better.
    The step of w̃ is the smaller one: a client held at the kink then answers with the right mean of
    signs.
    """
    b, best = facts(linear)
    lam, personal_lr, lr = 0.6, 2e-3, 2e-4
    method = coterie.LpProj1(
        lam=lam,
        lr=lr,
        personal_lr=personal_lr,
        local_rounds=20,
        inner_steps=1,
        dsub=2,
        projection="orthogonal",
    )
    result = run(method, linear, 2500)
    p, w, x = matrix_of(result), np.asarray(result.simulator.hub), models(result)
    target = best @ p.T
    assert (np.abs(target - w) < lam / b).any(), "somebody must be held at the kink"
    assert (np.abs(target - w) > lam / b).any(), "somebody must be off it"
    jitter = 5 * lam * personal_lr
    np.testing.assert_allclose(
        x @ p.T, target - np.clip(target - w, -lam / b, lam / b), atol=jitter
    )
    np.testing.assert_allclose(x - x @ p.T @ p, best - best @ p.T @ p, atol=1e-6)
    np.testing.assert_allclose(w, huber_location(target, lam / b, b), atol=10 * jitter)


def graphs() -> dict[str, Graph]:
    rng = np.random.default_rng(2)
    a = np.triu(rng.uniform(0.1, 1.5, (N, N)), 1)
    path = np.diag([0.5, 2.0, 1.0], 1)
    return {
        "complete, random weights": coterie.graph.from_matrix(a + a.T),
        "path, unequal weights": coterie.graph.from_matrix(path + path.T),
        "ring": coterie.graph.ring(N, 0.7),
        "star": coterie.graph.star(N, 1.2),
    }


def laplacian(graph: Graph) -> NDArray[np.float64]:
    a = graph.weights.toarray()
    return np.asarray(np.diag(a.sum(1)) - a)


def fixed_point(
    federation: Federation,
    graph: Graph,
    lr: float,
    steps: int,
    eta: float,
    inside: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Of one round: w⁺ = ŵ + (I − μH)^R (w − ŵ), then w = M w⁺ with M = I − μRη L⊗PᵀP; so (I − M D)
    w = M (I − D) ŵ, D = (I − μH)^R.
    """
    b, best = facts(federation)
    shrink = np.diag(np.repeat((1 - lr * b[:, 0]) ** steps, D))
    mix = np.eye(N * D) - lr * steps * eta * np.kron(laplacian(graph), inside)
    return np.linalg.solve(
        np.eye(N * D) - mix @ shrink, mix @ (np.eye(N * D) - shrink) @ best.reshape(-1)
    ).reshape(N, -1)


def optimum(
    federation: Federation, graph: Graph, eta: float, inside: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the problem: (blockdiag(H_k) + η L⊗PᵀP) W = blockdiag(H_k) Ŵ."""
    b, best = facts(federation)
    h = np.diag(np.repeat(b[:, 0], D))
    return np.linalg.solve(
        h + eta * np.kron(laplacian(graph), inside), h @ best.reshape(-1)
    ).reshape(N, -1)


GRAPH_METHODS = [
    coterie.FedU(lr=0.1, eta=0.8, local_steps=1),
    coterie.DFedU(lr=0.1, eta=0.8, local_steps=3),
    coterie.GraphProj(lr=0.1, eta=0.8, local_steps=1, dsub=2),
    coterie.GraphProj(lr=0.1, eta=0.8, local_steps=3, dsub=2, projection="orthogonal", hub=False),
]


def inside_of(result: Result) -> NDArray[np.float64]:
    if getattr(result.simulator.method, "drawn", None) is None:
        return np.eye(D)
    p = matrix_of(result)
    return p.T @ p


@pytest.mark.parametrize("graph", graphs())
@pytest.mark.parametrize("method", GRAPH_METHODS, ids=lambda m: f"{m.name}, R={m.R}")
def test_graph_methods_reach_the_fixed_point_of_their_round(
    method: Method, graph: str, linear: Federation
) -> None:
    result = run(method, linear, 1000, graphs()[graph])
    expected = fixed_point(
        linear, graphs()[graph], method.lr, method.R, method.eta, inside_of(result)
    )  # type: ignore[attr-defined]
    close(models(result), expected, 1e-9)
    assert np.abs(expected - facts(linear)[1]).max() > 0.05, "the coupling must matter"


@pytest.mark.parametrize("method", GRAPH_METHODS[:3], ids=lambda m: m.name)
def test_graph_methods_reach_the_solution_of_the_linear_system_with_falling_steps(
    method: Method, linear: Federation
) -> None:
    """The round's fixed point is off by O(μ); with μ_t = 4/(12 + t) that vanishes, and b ≥ ½
    forgets the start like t^−2.
    """
    graph = graphs()["path, unequal weights"]
    decaying = method.replace(
        lr={"kind": "inverse-time", "scale": 4.0, "shift": 12.0}, local_steps=1
    )
    result = run(decaying, linear, 10_000, graph)
    expected = optimum(linear, graph, method.eta, inside_of(result))  # type: ignore[attr-defined]
    close(models(result), expected, 1e-4)


def test_the_gap_between_fixed_point_and_solution_is_proportional_to_the_step(
    linear: Federation,
) -> None:
    graph, eye = graphs()["complete, random weights"], np.eye(D)
    gaps = []
    for lr in (0.02, 0.01):
        result = run(coterie.FedU(lr=lr, eta=0.8, local_steps=1), linear, 5000, graph)
        close(models(result), fixed_point(linear, graph, lr, 1, 0.8, eye), 1e-9)
        gaps.append(np.abs(models(result) - optimum(linear, graph, 0.8, eye)).max())
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)


def test_p_1_5_on_a_graph_is_stationary(linear: Federation) -> None:
    """H(x − ŵ) + η Σ_l a_kl Pᵀψ_p(Px_k − Px_l) = 0 up to the O(μ) that a simultaneous local step
    and pull leave.
    """
    graph = graphs()["ring"]
    b, best = facts(linear)
    residuals = []
    for lr in (0.02, 0.01):
        result = run(
            coterie.GraphProj(lr=lr, eta=0.5, local_steps=1, dsub=2, p=1.5), linear, 5000, graph
        )
        x, p, a = models(result), matrix_of(result), graph.weights.toarray()
        gap = (x[:, None] - x[None]) @ p.T
        pull = np.einsum("kl,kls->ks", a, np.sign(gap) * np.sqrt(np.abs(gap))) @ p
        residuals.append(np.abs(b * (x - best) + 0.5 * pull).max())
    assert residuals[0] / residuals[1] == pytest.approx(2, rel=0.1)
    assert residuals[1] < 0.05


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_the_gradient_is_the_derivative_of_the_penalty(p: float) -> None:
    rng = np.random.default_rng(int(2 * p))
    with jax.enable_x64(True):
        v = jnp.asarray(rng.standard_normal(7))
        h = 1e-6
        numeric = [
            (penalty.value(v.at[i].add(h), p) - penalty.value(v.at[i].add(-h), p)) / (2 * h)
            for i in range(7)
        ]
        np.testing.assert_allclose(penalty.gradient(v, p), numeric, rtol=1e-6)
        whole = Vector({"a": v[:3], "b": v[3:].reshape(2, 2)})
        np.testing.assert_allclose(
            penalty.gradient(whole, p).flat(), penalty.gradient(v, p), rtol=1e-15
        )
        np.testing.assert_allclose(penalty.value(whole, p), np.sum(np.abs(v) ** p) / p, rtol=1e-14)
        assert np.all(np.asarray(penalty.gradient(-v, p)) == -np.asarray(penalty.gradient(v, p)))
