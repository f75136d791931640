"""MOCHA against direct solutions of its convex problem, in both losses, with stragglers, drop-outs
and sampled cohorts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import coterie
from coterie import Federation, InvalidInput, Mocha, Result, Simulator
from coterie.data.federation import pack
from tests.support import quadratics

Array = NDArray[np.float64]
LAM, DECAY, L2 = 0.5, 0.05, 0.03


@pytest.fixture(scope="module")
def linear() -> Federation:
    return quadratics.linear()


def run(method: Mocha, federation: Federation, rounds: int, **more: Any) -> Result:
    model = coterie.get_model("mlr" if federation.classes else "linear", {"l2": L2})
    return coterie.simulate(
        method,
        federation,
        model,
        rounds=rounds,
        eval_every=rounds,
        precision="float64",
        **({} if "sampling" in more else {"batch_size": 4}),
        **more,
    )


def data(federation: Federation, client: int) -> tuple[Array, Array]:
    """Features (with a constant one for softmax regression, which has an intercept) and targets as
    vectors.
    """
    x, y = federation.train.client(client)
    return (
        (np.c_[x, np.ones(len(x))], np.eye(federation.classes)[y])
        if federation.classes
        else (x, y[:, None])
    )


def weights(result: Result) -> Array:
    tree = result.simulator.all_models().tree
    return np.concatenate([tree["w"], tree["b"][:, :, None]], 2) if "b" in tree else tree["w"]


def coupling(omega: Array, lam: float = LAM, decay: float = DECAY) -> Array:
    return lam * omega + decay * np.eye(len(omega))


def centred(n: int) -> Array:
    square = np.linalg.matrix_power(np.eye(n) - np.ones((n, n)) / n, 2)
    return np.asarray(square)


def primal(w: Array, a: Array, federation: Federation) -> tuple[float, Array]:
    """The objective as the docstring has it, plus the model's own L2, and its gradient."""
    whole = a + L2 * np.eye(len(a))
    value, gradient = 0.5 * float(np.sum(w * np.tensordot(whole, w, 1))), np.tensordot(whole, w, 1)
    for k in range(len(w)):
        x, y = data(federation, k)
        z = x @ w[k].T
        error = softmax(z, 1) - y if federation.classes else z - y
        value += float(
            np.mean(
                logsumexp(z, 1) - (z * y).sum(1) if federation.classes else 0.5 * (error**2).sum(1)
            )
        )
        gradient[k] += error.T @ x / len(x)
    return value, gradient


def best(a: Array, federation: Federation, shape: tuple[int, ...]) -> float:
    """The least objective, by L-BFGS on the primal, or by linear algebra for the squared error."""
    if federation.classes:
        f = lambda flat: (lambda v, g: (v, g.ravel()))(*primal(flat.reshape(shape), a, federation))
        found = minimize(
            f,
            np.zeros(np.prod(shape)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
        )
        assert np.abs(found.jac).max() < 1e-6
        return float(found.fun)
    n, d = shape[0], shape[2]
    system, right = np.kron(a + L2 * np.eye(n), np.eye(d)), np.zeros(n * d)
    for k in range(n):
        x, y = data(federation, k)
        system[k * d : (k + 1) * d, k * d : (k + 1) * d] += x.T @ x / len(x)
        right[k * d : (k + 1) * d] = x.T @ y[:, 0] / len(x)
    return primal(np.linalg.solve(system, right).reshape(shape), a, federation)[0]


def dual(simulator: Simulator, a: Array, federation: Federation) -> tuple[float, Array]:
    """The dual objective of what the clients keep, and V recomputed from it.

    Checks that α is feasible.
    """
    n = federation.clients
    state = simulator.store.gather(np.arange(n)).method_state
    shrink = state.shrink.tree
    r = (
        np.concatenate([shrink["w"], shrink["b"][:, :, None]], 2)
        if "b" in shrink
        else np.asarray(shrink["w"])
    )
    v, value = r.copy(), -float((r**2).sum()) / (2 * L2)
    for k in range(n):
        x, y = data(federation, k)
        alpha = np.asarray(state.alpha[k])
        assert (alpha[len(x) :] == 0).all(), "padding has no dual variables"
        alpha = alpha[: len(x)]
        v[k] += alpha.T @ x / len(x)
        if federation.classes:
            p = y - alpha
            assert p.min() > -1e-12
            np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
            p = np.maximum(p, 1e-300)
            value -= float((p * np.log(p)).sum(1).mean())
        else:
            value -= float((0.5 * (alpha**2).sum(1) - (alpha * y).sum(1)).mean())
    return value - 0.5 * float(np.sum(v * np.tensordot(np.linalg.inv(a), v, 1))), v


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "plain": ({}, {}, 100),
    "two passes in the order of the data": ({"local_epochs": 2}, {"sampling": "full"}, 60),
    "slow, dropping, sampled": ({"slowest": 0.3, "drop": 0.3}, {"cohort": 3}, 600),
    "strongly coupled": ({"lam": 20.0, "decay": 0.1}, {}, 600),
}


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(
            kind,
            case,
            marks=(
                []
                if (kind, case) in (("softmax", "slow, dropping, sampled"), ("squares", "plain"))
                else [pytest.mark.slow]
            ),
        )
        for kind in ("softmax", "squares")
        for case in CASES
    ],
)
def test_the_objective_is_that_of_a_direct_solve(
    kind: str, case: str, ragged: Federation, linear: Federation
) -> None:
    federation = ragged if kind == "softmax" else linear
    options, more, rounds = CASES[case]
    method = Mocha(**{"lam": LAM, "decay": DECAY, **options})
    a = coupling(centred(federation.clients), method.lam, method.decay)
    result = run(method, federation, rounds, **more)
    w = weights(result)
    value, least = primal(w, a, federation)[0], best(a, federation, w.shape)
    assert primal(np.zeros_like(w), a, federation)[0] > 1.05 * least, (
        "the start must not be the solution"
    )
    assert value == pytest.approx(least, rel=1e-3)
    assert value >= least * (1 - 1e-9)
    below, v = dual(result.simulator, a, federation)
    assert below <= least * (1 + 1e-9)
    assert value - below < 1e-3 * least, "the duality gap must vanish"
    np.testing.assert_allclose(w, np.tensordot(np.linalg.inv(a), v, 1), rtol=1e-8, atol=1e-10)


def test_the_gap_falls_round_by_round_and_never_rises_in_the_dual(ragged: Federation) -> None:
    """Simultaneous updates of all clients are added up: the bound q_k must make that safe.

    Early rounds are far from the solution.
    """
    a = coupling(centred(5), 5.0, DECAY)
    training = coterie.Training(rounds=100, eval_every=100, batch_size=4, precision="float64")
    simulator = coterie.Simulator(
        Mocha(lam=5.0, decay=DECAY), ragged, coterie.get_model("mlr", {"l2": L2}), training
    )
    values = []
    while simulator.t < 10:
        simulator.advance(1)
        values.append(dual(simulator, a, ragged)[0])
    assert (np.diff(values) > 0).all()


def test_drop_outs_send_nothing_and_are_not_billed(ragged: Federation) -> None:
    rows = run(Mocha(lam=LAM, drop=0.4), ragged, 60).ledger.rows()
    size = 8 * (3 * 4 + 3)
    assert set(rows[:, 2]) == {0, size}
    assert 0.25 < np.mean(rows[:, 2] == 0) < 0.55
    assert (rows[rows[:, 2] == 0][:, 4] == 0).all()
    assert set(rows[:, 3]) == {size + 8}, "w_k and q_k come down all the same"
    np.testing.assert_array_equal(
        rows[rows[:, 2] > 0][:, 4], -(-ragged.train.sizes[rows[rows[:, 2] > 0][:, 1]] // 4)
    )


def test_slow_clients_do_a_share_of_their_steps_that_changes(ragged: Federation) -> None:
    rows = run(Mocha(lam=LAM, slowest=0.25), ragged, 60).ledger.rows()
    large = rows[rows[:, 1] == 3][:, 4]  # 22 samples are 6 batches of 4
    assert set(large) == {2, 3, 4, 5, 6}, "a quarter of 22 samples is 6, which is 2 batches' worth"


@pytest.fixture(scope="module")
def groups() -> Federation:
    """Six clients with few samples; the first three have one true model, the others its
    negative.
    """
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(4)
    parts = []
    for k in range(6):
        x = rng.standard_normal((8, 4))
        parts.append((x, x @ (truth if k < 3 else -truth) + 0.3 * rng.standard_normal(8)))
    return Federation("groups", pack(parts), pack(parts), pack(parts), task="regression")


@pytest.fixture(scope="module")
def learnt(groups: Federation) -> Result:
    """Ω changes after rounds 40, 80, …, 360; the last 39 rounds are for the models."""
    return run(Mocha(lam=0.05, decay=DECAY, omega="learn", omega_every=40), groups, 399)


def test_learnt_relations_find_the_groups_and_the_models_are_optimal_for_them(
    learnt: Result, groups: Federation
) -> None:
    omega = np.asarray(learnt.simulator.hub.omega)
    np.testing.assert_allclose(np.trace(np.linalg.inv(omega)), 1, rtol=1e-9)
    a, w = coupling(omega, 0.05), weights(learnt)
    assert primal(w, a, groups)[0] == pytest.approx(best(a, groups, w.shape), rel=1e-3)
    sigma = np.linalg.inv(omega)
    alike = sigma / np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
    same = np.equal.outer(np.arange(6) < 3, np.arange(6) < 3) & ~np.eye(6, dtype=bool)
    assert alike[same].min() > 0.3
    assert alike[~same & ~np.eye(6, dtype=bool)].max() < -0.3


def test_the_update_of_the_relations_is_their_best_for_the_models(learnt: Result) -> None:
    """tr(WΩWᵀ) is least for Ω⁻¹ = (WᵀW)^½ / tr(WᵀW)^½ among all with tr Ω⁻¹ = 1, where it is (tr
    (WᵀW)^½)².
    """
    w, simulator = weights(learnt).reshape(6, -1), learnt.simulator
    with simulator.precision():
        omega = np.asarray(simulator.method.replace(omega_floor=1e-9).learn(simulator.hub).omega)  # type: ignore[attr-defined]
    singular = np.linalg.svd(w, compute_uv=False)
    assert np.trace(w.T @ omega @ w) == pytest.approx(singular.sum() ** 2, rel=1e-6)


def test_relations_from_a_file(linear: Federation, tmp_path: Path) -> None:
    path = tmp_path / "omega.npy"
    np.save(path, centred(4))
    read = weights(run(Mocha(omega="file", omega_file=str(path), lam=LAM), linear, 60))
    np.testing.assert_allclose(read, weights(run(Mocha(lam=LAM), linear, 60)), rtol=1e-10)
    other = np.diag([2.0, 2.0, 2.0, 6.0]) - np.ones((4, 4)) * np.array(
        [[0, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 0]]
    )
    np.save(path, other)
    result = run(Mocha(omega="file", omega_file=str(path), lam=LAM, decay=1.0), linear, 300)
    a, w = coupling(other, decay=1.0), weights(result)
    assert primal(w, a, linear)[0] == pytest.approx(best(a, linear, w.shape), rel=1e-6)


@pytest.mark.parametrize(
    ("method", "model", "sentence"),
    [
        (Mocha(), "mlp", 'mocha needs a linear model such as "mlr" or "linear"'),
        (
            Mocha(decay=0.0),
            "mlr",
            "mocha.decay is 0, but lam·Ω \\+ decay·I must be positive definite",
        ),
        (Mocha(omega="file"), "mlr", "mocha.omega_file is None, but"),
        (Mocha(omega="file", omega_file="no.npy"), "mlr", "mocha.omega_file is 'no.npy', but"),
    ],
    ids=["perceptron", "singular", "no file", "missing file"],
)
def test_what_cannot_be_solved_is_refused(
    method: Mocha, model: str, sentence: str, ragged: Federation
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        coterie.simulate(method, ragged, model, rounds=1)


@pytest.mark.parametrize(
    "wrong",
    [np.eye(3), np.triu(np.ones((5, 5))), np.full((5, 5), np.nan)],
    ids=["size", "not symmetric", "not finite"],
)
def test_a_matrix_that_cannot_be_meant_is_refused(
    wrong: Array, ragged: Federation, tmp_path: Path
) -> None:
    path = tmp_path / "omega.npy"
    np.save(path, wrong)
    with pytest.raises(InvalidInput, match="must hold a symmetric matrix of finite numbers, 5 × 5"):
        coterie.simulate(Mocha(omega="file", omega_file=str(path)), ragged, rounds=1)


def test_a_matrix_file_of_junk_is_refused(ragged: Federation, tmp_path: Path) -> None:
    path = tmp_path / "omega.npy"
    path.write_bytes(b"PK\x03\x04 not a matrix")
    with pytest.raises(InvalidInput, match=r"mocha.omega_file .*cannot be read"):
        coterie.simulate(Mocha(omega="file", omega_file=str(path)), ragged, rounds=1)
