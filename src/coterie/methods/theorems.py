"""The step sizes up to which the papers' theorems are proved, as formulas.

They are far below what is stable (`conditions`), and below what anybody uses: constants of proofs.
`coterie check` says whether a run keeps to them; the experiments on rates use them.

| here | paper |
|---|---|
| `fedu_convex`, `fedu_smooth` | FedU, Theorems 1 and 2: the largest μ̃ = μR |
| `pfedme_convex`, `pfedme_smooth` | pFedMe, Theorems 1 and 2: the largest η̃ = ηβR |
| `lp_proj_convex`, `lp_proj_smooth` | lp-proj, Theorems 9 and 13: the largest η̃ = ηβR |
"""

from __future__ import annotations


def fedu_convex(smooth: float, convex: float, strength: float) -> float:
    """μ̃₁ for losses that are β-smooth and α-strongly convex, with `strength` = ηρ, ρ = ‖L‖."""
    b, a, s = smooth, convex, strength
    p = 2 * (b + s) + (8 * s**2 + 64 * b**2) / a
    p += 12 * (b + s) ** 2 / s + 6 * s + 48 * b**2 / s
    q = 128 * b**2 * s / a**2 + 12 * (b + s) + 96 * b**2 / a + 32 * p * b**2 / (a * s)
    return min(1 / q, 2 / s)


def fedu_smooth(smooth: float, strength: float) -> float:
    """μ̃₂ for losses that are β-smooth, with `strength` = ηρ."""
    b, s = smooth, strength
    u = (b + s) ** 2 / 2 + 2 * s**2 + 16 * s * b**2
    u += 6 * (b + s) ** 3 / s + 3 * s * (b + s) + 24 * (b + s) * b**2 / s
    v = 8 * (8 * s + 15 * (b + s) + 8 * u / s)
    return min(1 / v, 2 / s)


def envelope_convexity(lam: float, convex: float, squared_norm: float = 1.0) -> float:
    """μ_F of F_k(w) = min_x f_k(x) + (λ/2)‖w − Px‖², with ‖P‖² = `squared_norm` (pFedMe: 1)."""
    return lam * convex / (squared_norm * lam + convex)


def pfedme_convex(lam: float, convexity: float, beta: float) -> float:
    """η̂₁, with μ_F = `convexity` and L_F = λ."""
    return 1 / (6 * lam * (3 + 128 * lam / convexity / beta))


def pfedme_smooth(lam: float) -> float:
    """η̂₂, with L_F = λ; it takes λ ≥ √(8L² + 1)."""
    return 1 / (75 * lam**3)


def lp_proj_convex(lam: float, convexity: float, beta: float) -> float:
    """η̂₁, with μ_F = `convexity` and L_F = λ."""
    return 1 / (18 * lam * (1 + 10 * lam / convexity / beta))


def lp_proj_smooth(lam: float) -> float:
    """η̂₂, with L_F = λ; it takes λ ≥ max(√(10L² + 1), 4L)."""
    return 1 / (90 * lam**3)
