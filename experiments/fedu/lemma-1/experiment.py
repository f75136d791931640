"""FedU's Lemma 1, tried on quadratics.

python experiments/fedu/lemma-1/experiment.py

Lemma 1 says: if ηρ > 2β, with ρ = ‖L‖ and β the smoothness of all F_k, there is a σ₂, e.g.
σ₂ = ‖∇F(0)‖ √(ηρ / (ηρ − 2β)), so that for all W

    (7)  Σ‖∇F_k(w_k)‖² ≤ σ₂² + Σ‖∇_k J(W)‖²,   and so   (8)  Σ‖∇F_k(w_k*)‖² ≤ σ₂².

Here F_k(w) = (h_k/2)(w − m_k)² on the real line, 0 ≤ h_k ≤ β = 1, and ∇J(W) = ∇F(W) + ηLW, as in
the lemma's proof. For W = c·u with c → ∞ no σ₂ helps where the ratio ‖Hu‖² / ‖(H + ηL)u‖² is above
1; its largest value over all u is γ². For (8), W* solves (H + ηL)W = Hm.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DRAWS, BETA = 2000, 1.0


def laplacian(a: np.ndarray) -> np.ndarray:
    return np.diag(a.sum(1)) - a


def counterexample() -> list[str]:
    """N = 2, a = 1, F₁ = 0, F₂ = w²/2, η = 2, W = c(1.1, 1)."""
    l, h, eta = laplacian(np.array([[0.0, 1.0], [1.0, 0.0]])), np.diag([0.0, 1.0]), 2.0
    lines = ["| c | Σ‖∇F_k‖² | Σ‖∇_k J‖² | Σ‖∇_k J‖², gradient of (3), 2ηL |", "|---|---|---|---|"]
    for c in (1.0, 10.0, 1000.0):
        w = c * np.array([1.1, 1.0])
        f, j, twice = (np.sum(((h + k * eta * l) @ w) ** 2) for k in (0, 1, 2))
        lines.append(f"| {c:g} | {f:.6g} | {j:.6g} | {twice:.6g} |")
    rho = np.linalg.norm(l, 2)
    return [f"ηρ = {eta * rho:g} > 2β = 2, ∇F(0) = 0, so the lemma's σ₂ is 0:", "", *lines]


def drawn(n: int, strength: float, convex: bool, rng: np.random.Generator) -> tuple[float, float]:
    """γ², and ‖∇F(W*)‖ over the lemma's σ₂, on a random graph with random quadratics, ηρ =
    strength · 2β.
    """
    while True:
        a = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.6), 1)
        l = laplacian(a + a.T)
        if np.sort(np.linalg.eigvalsh(l))[1] > 1e-6:  # connected
            break
    rho = np.linalg.norm(l, 2)
    eta = strength * 2 * BETA / rho
    low = 0.1 if convex else 0.0
    h = np.diag(low + (BETA - low) * rng.random(n))
    m = rng.standard_normal(n)
    together = h + eta * l
    gamma = np.linalg.norm(h @ np.linalg.inv(together), 2) ** 2
    best = np.linalg.solve(together, h @ m)
    sigma = np.linalg.norm(h @ m) * np.sqrt(eta * rho / (eta * rho - 2 * BETA))
    return float(gamma), float(np.linalg.norm(h @ (best - m)) / sigma)


def table() -> list[str]:
    lines = [
        "| N | ηρ / 2β | draws that break (7) for every σ₂ | γ²: median, largest |"
        " draws that break (8) | ‖∇F(W*)‖ / σ₂: largest |",
        "|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    for n in (2, 5, 20):
        for strength in (1.05, 2.0, 10.0):
            found = np.array([drawn(n, strength, True, rng) for _ in range(DRAWS)])
            broken = int((found[:, 0] > 1 + 1e-9).sum())
            eight = int((found[:, 1] > 1 + 1e-9).sum())
            lines.append(
                f"| {n} | {strength:g} | {broken} of {DRAWS} | {np.median(found[:, 0]):.3f},"
                f" {found[:, 0].max():.3f} | {eight} of {DRAWS} | {found[:, 1].max():.3f} |"
            )
    return lines


if __name__ == "__main__":
    pages = [
        "# FedU's Lemma 1 on quadratics",
        "",
        "`python experiments/fedu/lemma-1/experiment.py`",
        "",
        "## The counterexample",
        "",
        *counterexample(),
        "",
        "## Random connected graphs, strongly convex quadratics (0.1 ≤ h_k ≤ 1)",
        "",
        *table(),
        "",
    ]
    (HERE / "result.md").write_text("\n".join(pages), encoding="utf-8")
    print("\n".join(pages))
