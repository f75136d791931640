"""lp-proj's Theorems 14 and 15, both halves: do the schedules give the rates that they promise?

python experiments/lp-proj/rates/experiment.py

Theorem 14 (strongly convex): linear regression with Ξ_kᵀΞ_k = n b_k I, b from ½ to 2, and
l2 = μ = 1, so that the loss of every single sample is μ-strongly convex; d = 6, dsub = 2, P with
orthonormal rows (s = 0), λ = 1, so μ_F = 1/2, L_F = λ, ζ = 72κ_F(1 + 7κ_F/β). First half: S = 2 of
8, ν_t = 8/(μ_F(ζ + t)), D_t = ⌈μ_F(ζ + t)/D⌉. Second: S = N, ν_t = 8/(μ_Fβ²(ζ + t)²),
D_t = ⌈μ_Fβ²(ζ + t)²/D⌉. In both η_t = 8/(βRμ_F(ζ + t)). D is such that a batch has 64 samples in
the last round (over β: with the largest β; the same D for all). Measured: E‖w̃_T − w̃*‖² and the mean
over clients of E‖x_k^T − x_k*‖², x_k^T being what client k has after round T.

Theorem 15 (smooth, not convex): residuals of a linear model cost r²/(2 + 2r²); all inputs lie in
the span of Pᵀ (Assumption 6) and have the length √L, L = 1/4; λ = √(10L² + 1). First half: S = 2 of
8, η_t, ν_t ~ t^−1/2, D_t ~ t^1/2; second: S = N, η_t ~ t^−1/3, ν_t ~ t^−2/3, D_t ~ t^2/3, all with
the theorem's constants, and once more with η_t c times as large. Measured:
Σ α_t ‖∇F(w̃_t)‖², α_t ~ η_t, and ‖∇F(w̃_T)‖² of the last. Inner problems by Nesterov's steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from rates import Sweep, write  # noqa: E402

import coterie  # noqa: E402
from coterie import InverseSqrt, InverseTime, Linear, Model, Power, SquareRoot, Vector  # noqa: E402
from coterie.coupling import projection  # noqa: E402
from coterie.engine.iterates import follow  # noqa: E402
from coterie.methods.inner import nesterov  # noqa: E402
from coterie.methods.theorems import envelope_convexity, lp_proj_smooth  # noqa: E402
from coterie.models.base import OwnLoss  # noqa: E402

N, D, R, SEEDS = 8, 6, 2, 8


def look(state):
    """w̃, and everybody's x."""
    return state.hub.method_state, state.rows.method_state.leaves[0]


# -- Theorem 14 ------------------------------------------------------------------------------------

DSUB, LAM, MU, BATCH = 2, 1.0, 1.0, 64
FED = coterie.load(
    "linear",
    clients=N,
    dimension=D,
    samples=BATCH,
    scale=0.5,
    scale_last=2.0,
    spread=1.0,
    noise=1.0,
    test_samples=1,
)
B = FED.facts["b"][:, None] + MU
BEST = FED.facts["b"][:, None] * FED.facts["least_squares"] / B
"""Curvature and minimiser of each f_k."""
MU_F = envelope_convexity(LAM, MU)
KAPPA = LAM / MU_F
STEEPEST = float(np.max(np.sum(FED.train.x**2, 1))) + MU + LAM
"""The largest curvature of h on any batch."""


def drawn(d: int, dsub: int) -> np.ndarray:
    """P with orthonormal rows, as methods draw it from projection_seed = 0."""
    with jax.enable_x64(True):
        template = Vector({"w": jnp.zeros((1, d))})
        p = projection.draw("orthogonal", template, dsub, jax.random.key(0), blocks=1)
        return np.stack([np.asarray(p.back(row, template).flat()) for row in jnp.eye(dsub)])


P = drawn(D, DSUB)
SHARE = B / (B + LAM)
W_STAR = (SHARE * (BEST @ P.T)).sum(0) / SHARE.sum()
X_STAR = (B * (BEST @ P.T) + LAM * W_STAR) / (B + LAM) @ P + BEST - BEST @ P.T @ P


def shift(beta: float) -> float:
    """ζ."""
    return 72 * KAPPA * (1 + 7 * KAPPA / beta)


def theorem_14(
    t: int, beta: float, *, second: bool, most: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of w̃ and of the x_k, (seeds, rounds T = 0, every, …). With `most` the
    constant D is that of another β.
    """
    zeta, most = shift(beta), most or beta
    lr = InverseTime(scale=8 / (beta * R * MU_F), shift=zeta)
    if second:
        nu = Power(scale=8 / (MU_F * beta**2), exponent=-2.0, shift=zeta)
        whole = BATCH * (beta / most / (shift(most) + t)) ** 2
        size = Power(scale=whole, exponent=2.0, shift=zeta)
    else:
        nu = InverseTime(scale=8 / MU_F, shift=zeta)
        size = Linear(slope=BATCH / (zeta + t), shift=zeta)
    method = coterie.LpProj2(
        lam=LAM,
        lr=lr,
        beta=beta,
        local_rounds=R,
        personal_lr=1 / STEEPEST,
        l2=MU,
        inner_solver="nesterov",
        inner_momentum=float(nesterov(MU / STEEPEST)),
        inner_steps=200,
        tolerance=nu,
        dsub=DSUB,
        projection="orthogonal",
        projection_seed=0,
    )
    given = {"rounds": t, "cohort": N if second else 2, "precision": "float64", "devices": 1}
    given |= {"sampling": "replace", "batch_size": BATCH, "batch_schedule": size}
    sim = coterie.Simulator(method, FED, "linear", coterie.Training(**given))
    found = follow(sim, look, seeds=range(SEEDS), every=EVERY)
    w, x = (np.asarray(part) for part in found.iterates)
    x = x.reshape(*x.shape[:2], N, D)
    return np.sum((w - W_STAR) ** 2, -1), np.mean(np.sum((x - X_STAR) ** 2, -1), -1)


EVERY = 256
POINTS = [2**i for i in range(10, 14)]


def fourteen() -> list[Sweep]:
    out = []
    at, x = [t // EVERY for t in POINTS], [shift(8.0) + t for t in POINTS]
    for second in (False, True):
        found = theorem_14(POINTS[-1], 8.0, second=second)
        print("Theorem 14", second, flush=True)
        half = "second half, S = N" if second else "first half, S = 2"
        for name, errors in zip(NAMES, found, strict=True):
            said = "−2" if second else "−1"
            out.append(Sweep(f"Thm 14, {half}: {name}", "ζ + T", x, errors[:, at].T, said))
    betas, t = (2.0, 4.0, 8.0, 16.0), 2048
    ends = [theorem_14(t, beta, second=True, most=betas[-1]) for beta in betas]
    print("Theorem 14, β", flush=True)
    for i, name in enumerate(NAMES):
        last = np.stack([end[i][:, -1] for end in ends])
        out.append(Sweep(f"Thm 14, S = N, T = {t}: {name}", "β", list(betas), last, "−2"))
    return out


NAMES = ("‖w̃ − w̃*‖²", "‖x − x*‖²")


# -- Theorem 15 ------------------------------------------------------------------------------------

L, DSUB_15, ROWS = 0.25, 3, 64
LAM_15 = max((10 * L**2 + 1) ** 0.5, 4 * L)
P_15 = drawn(D, DSUB_15)


def bent() -> tuple[coterie.Federation, np.ndarray, np.ndarray]:
    """Data whose inputs lie in the span of Pᵀ: the federation, inputs a with x = Pᵀa, targets."""
    rng = np.random.default_rng(15)
    a = rng.standard_normal((N, ROWS, DSUB_15))
    a *= L**0.5 / np.linalg.norm(a, axis=-1, keepdims=True)
    truth = rng.standard_normal((N, DSUB_15)) + 1.0
    y = np.einsum("krs,ks->kr", a, truth) + 0.3 * rng.standard_normal((N, ROWS))
    y += 2.0 * (rng.random((N, ROWS)) < 0.1)  # outliers, whom this loss is for
    owner = np.repeat(np.arange(N), ROWS)
    x = (a @ P_15).reshape(-1, D)
    parts = {"task": "regression", "validation": 0.0, "test": 0.0}
    given = coterie.from_arrays("bent", x, y.reshape(-1), owner, **parts)
    inputs = np.stack([given.train.client(k)[0] @ P_15.T for k in range(N)])
    return given, inputs, np.stack([given.train.client(k)[1] for k in range(N)])


BENT, INPUTS, TARGETS = bent()


def _training(p, x, y, weight, seed):
    r = (p["w"] @ x.T)[0] - y
    return jnp.sum(weight * r**2 / (2 + 2 * r**2)) / jnp.sum(weight)


def _samples(outputs, y):
    r = outputs[0] - y
    return r**2 / (2 + 2 * r**2)


MODEL = Model(
    lambda key: {"w": jnp.zeros((1, D))},
    lambda p, x: p["w"] @ x.T,
    class_major=True,
    loss=OwnLoss(_training, _samples),
)


def squared_gradient(w: np.ndarray) -> np.ndarray:
    """‖∇F(w̃)‖² for any number of w̃: ∇F = λ mean_k (w̃ − P x̂_k), x̂_k = Pᵀy with
    y = w̃ − ∇f_k(y)/λ, which contracts by L/λ.
    """
    flat = w.reshape(-1, DSUB_15)
    total = np.zeros_like(flat)
    for k in range(N):
        y = flat.copy()
        for _ in range(25):
            r = y @ INPUTS[k].T - TARGETS[k]
            y = flat - (r / (1 + r**2) ** 2) @ INPUTS[k] / (ROWS * LAM_15)
        total += LAM_15 * (flat - y) / N
    return np.sum(total**2, 1).reshape(w.shape[:-1])


def theorem_15(t: int, beta: float, times: float, *, second: bool) -> tuple[np.ndarray, np.ndarray]:
    """Σ α_t‖∇F(w̃_t)‖² up to, and ‖∇F‖² at, the rounds that are looked at: (seeds, rounds)."""
    small = lp_proj_smooth(LAM_15)
    if second:
        power = 1 / 3
        lr = Power(scale=times * small / (beta ** (1 / 3) * R), exponent=-1 / 3)
        nu = Power(scale=small / beta ** (2 / 3), exponent=-2 / 3)
        size = Power(scale=ROWS / t ** (2 / 3), exponent=2 / 3)
    else:
        power = 1 / 2
        lr = InverseSqrt(scale=times * small / (beta * R))
        nu, size = InverseSqrt(scale=small), SquareRoot(scale=ROWS / t**0.5)
    method = coterie.LpProj2(
        lam=LAM_15,
        lr=lr,
        beta=beta,
        local_rounds=R,
        personal_lr=1 / (LAM_15 + L),
        inner_solver="nesterov",
        inner_momentum=0.2,
        inner_steps=100,
        tolerance=nu,
        dsub=DSUB_15,
        projection="orthogonal",
        projection_seed=0,
    )
    given = {"rounds": t, "cohort": N if second else 2, "precision": "float64", "devices": 1}
    given |= {"sampling": "replace", "batch_size": ROWS, "batch_schedule": size}
    sim = coterie.Simulator(method, BENT, MODEL, coterie.Training(**given))
    found = follow(sim, look, seeds=range(8), every=EVERY_15)
    g = squared_gradient(np.asarray(found.iterates[0]))
    # The weight of a block of rounds with the mean of ‖∇F‖² at its ends.
    weight = np.add.reduceat(np.arange(1.0, t + 1) ** -power, np.arange(0, t, EVERY_15))
    middle = (g[:, 1:] + g[:, :-1]) / 2
    return np.cumsum(weight * middle, 1) / np.cumsum(weight), g[:, 1:]


EVERY_15 = 16
POINTS_15 = [2**i for i in range(7, 15)]


def fifteen() -> list[Sweep]:
    out = []
    at = [t // EVERY_15 - 1 for t in POINTS_15]
    for second, times in ((False, 1.0), (False, 600.0), (True, 1.0), (True, 150.0)):
        mean, last = theorem_15(POINTS_15[-1], 8.0, times, second=second)
        print("Theorem 15", second, times, flush=True)
        half = "second half, S = N" if second else "first half, S = 2"
        steps = "" if times == 1 else f", η_t {times:g} times as large"
        said = "−2/3 and log" if second else "−1/2 and log"
        name = f"Thm 15, {half}{steps}"
        out.append(Sweep(f"{name}: Σ α_t‖∇F‖²", "rounds", POINTS_15, mean[:, at].T, said))
        out.append(Sweep(f"{name}: last ‖∇F‖²", "rounds", POINTS_15, last[:, at].T, "–"))
    return out


if __name__ == "__main__":
    lines = [
        f"Theorem 14: κ_F = {KAPPA:g}, β = 8, ζ = {shift(8):g}, R = {R},"
        f" {SEEDS} seeds. Theorem 15: λ = {LAM_15:.3g}, β = 8, 1/(90λ²L_F) ="
        f" {lp_proj_smooth(LAM_15):.3g}, R = {R}, 8 seeds.",
        "",
        "{table}",
    ]
    write(HERE, "lp-proj's Theorems 14 and 15: rates", lines, [*fourteen(), *fifteen()])
