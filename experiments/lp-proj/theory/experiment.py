"""lp-proj's Propositions 16, 18 and 24 and Figure 1, drawn at random beside their closed forms.

python experiments/lp-proj/theory/experiment.py

The paper's linear model (App. B): Ξ_kᵀΞ_k = n b I, so a client's least squares are w_k + noise
of variance σ²/(bn); one round in which everybody solves its problem exactly; P = the first dsub
coordinates. Benign clients send ŵ_k, malicious ones what the attack says; the hub takes the mean;
client k then has (b ŵ_k + λ w)/(b + λ), in lp-proj-2 for the first dsub numbers only. The test loss
is σ²/2 + (b/2)‖x_k − w_k‖². Setting of Figure 1: n = 200, N = 100, N_a = 20, d = 100, dsub = 10,
b = σ = 1, Σ₁ = 0.1, τ = 100 (10 for sign-flip); 400 draws of noise and attack.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
n, N, N_A, D, DSUB, B, SIGMA, SPREAD = 200, 100, 20, 100, 10, 1.0, 1.0, 0.1
TAU = {"same-value": 100.0, "sign-flip": 10.0, "gaussian": 100.0}
LAMBDAS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.1, 1.0, 10.0)
DRAWS = 400
N_B = N - N_A
NOISE = SIGMA**2 / (B * n)


def truths(rng: np.random.Generator) -> np.ndarray:
    """All clients' w_k (benign first), scaled so that (37) holds: the benign clients' mean squared
    distance from their sum over N is Σ₁ a coordinate, in the first dsub and in all.
    """
    w = rng.standard_normal((N, D))
    for part in (slice(0, DSUB), slice(DSUB, D)):
        mine = w[:N_B, part]
        away = mine.sum(0) / N - mine
        w[:, part] *= np.sqrt(SPREAD / np.mean(away**2))
    return w


def sent(attack: str, mine: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What malicious clients send in the place of their least squares `mine`."""
    tau = TAU[attack]
    if attack == "same-value":
        return np.repeat(tau * rng.standard_normal((len(mine), 1)), mine.shape[1], axis=1)
    if attack == "sign-flip":
        return -np.abs(tau * rng.standard_normal((len(mine), 1))) * mine
    return tau * rng.standard_normal(mine.shape)


def simulated(attack: str, w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mean loss of benign clients, (draws, λ, (Local, FedAvg, pFedMe = Ditto, lp-proj-2))."""
    found = np.zeros((DRAWS, len(LAMBDAS), 4))
    loss = lambda x: SIGMA**2 / 2 + B / 2 * np.mean(np.sum((x - w[:N_B]) ** 2, 1))
    for i in range(DRAWS):
        own = w + np.sqrt(NOISE) * rng.standard_normal(w.shape)
        hub = np.concatenate([own[:N_B], sent(attack, own[N_B:], rng)]).mean(0)
        for j, lam in enumerate(LAMBDAS):
            near = (B * own[:N_B] + lam * hub) / (B + lam)
            part = np.concatenate([near[:, :DSUB], own[:N_B, DSUB:]], axis=1)
            found[i, j] = loss(own[:N_B]), loss(hub), loss(near), loss(part)
    return found


def closed(lam: float, attack: str, w: np.ndarray) -> tuple[float, float, float, float]:
    """Local, FedAvg, pFedMe and lp-proj-2 by the paper's formulas. For sign-flip M₀ and Σ₂ are
    measured on the drawn w_k for each part, since (40) and (41) only hold about.
    """
    tau, half = TAU[attack], SIGMA**2 / 2

    def inside(part: slice) -> tuple[float, float]:
        """Variance of what malicious clients send, and how far the hub's mean is, a coordinate."""
        bad, good = w[N_B:, part], w[:N_B, part]
        if attack != "sign-flip":
            return tau**2, float(np.mean((good.sum(0) / N - good) ** 2))
        variance = tau**2 * ((1 - 2 / np.pi) * np.mean(bad**2) + NOISE)
        hub = (good.sum(0) - np.sqrt(2 / np.pi) * tau * bad.sum(0)) / N
        return float(variance), float(np.mean((hub - good) ** 2))

    def error(part: slice, size: int) -> float:
        variance, away = inside(part)
        own = (B**2 + 2 * B * lam / N + N_B * lam**2 / N**2) * NOISE
        coupled = N_A * lam**2 / N**2 * variance + lam**2 * away
        return B * size / 2 * (own + coupled) / (B + lam) ** 2

    variance, away = inside(slice(None))
    local = half + SIGMA**2 * D / (2 * n)
    average = half + B * D / 2 * ((N_B * NOISE + N_A * variance) / N**2 + away)
    rest = (D - DSUB) * SIGMA**2 / (2 * n)
    return local, average, half + error(slice(None), D), half + error(slice(DSUB), DSUB) + rest


def robustness(rng: np.random.Generator) -> tuple[list[str], dict[str, np.ndarray]]:
    w, drawn = truths(rng), {}
    best = (1 - 1 / N) * SIGMA**2 / n / (SPREAD + N_A / N**2 * (TAU["same-value"] ** 2 - NOISE))
    edge = 2 * best / (1 - best / B)
    lines = [
        f"λ₁* = {best:.3g} (the paper: about 4.9e-04), threshold 2λ₁*/(1 − λ₁*/b) = {edge:.3g}."
        " Mean loss of benign clients: closed form / drawn (± standard error).",
        "",
        "| attack | λ | Local | FedAvg | pFedMe = Ditto | lp-proj-2 | lp-proj-2 no worse: formula,"
        " Prop. 16 |",
        "|---|---|---|---|---|---|---|",
    ]
    for attack in TAU:
        found = drawn[attack] = simulated(attack, w, rng)
        for j, lam in enumerate(LAMBDAS):
            exact = closed(lam, attack, w)
            error = found[:, j].std(0, ddof=1) / np.sqrt(DRAWS)
            cells = [
                f"{a:.4f} / {b:.4f} ± {c:.4f}"
                for a, b, c in zip(exact, found[:, j].mean(0), error, strict=True)
            ]
            said = "yes" if lam >= edge else "no"
            holds = "yes" if exact[3] <= exact[2] else "no"
            told = f"{holds}, {said}" if attack != "sign-flip" else f"{holds}, –"
            lines.append(f"| {attack} | {lam:g} | " + " | ".join(cells) + f" | {told} |")
    return lines, drawn


def fairness(rng: np.random.Generator) -> list[str]:
    """E V = E of the variance over clients of their test losses; w_k i.i.d. N(0, Σ_w)."""
    lines = [
        "| Σ_w | d | drawn E var(‖w̄ − w_k‖²) | paper, 4(N−1)(N−2)/N² ΣΣ Σ_ij² |"
        " half of that | E V of lp-proj-2 (dsub = d/10) over pFedMe's |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("identity", "all entries 1/2, diagonal 1"):
        for d in (10, 40, 160):
            sigma = np.eye(d) if kind == "identity" else 0.5 * (np.eye(d) + 1)
            root = np.linalg.cholesky(sigma)
            var = {d: [], d // 10: []}  # type: ignore[var-annotated]
            for _ in range(1000):
                w = rng.standard_normal((N, d)) @ root.T
                for size, each in var.items():
                    part = w[:, :size]
                    each.append(np.var(np.sum((part.mean(0) - part) ** 2, 1)))
            paper = 4 * (N - 1) * (N - 2) / N**2 * np.sum(sigma**2)
            mean, error = np.mean(var[d]), np.std(var[d]) / np.sqrt(1000)
            ratio = np.mean(var[d // 10]) / mean
            lines.append(
                f"| {kind} | {d} | {mean:.1f} ± {error:.1f} | {paper:.1f} | {paper / 2:.1f} |"
                f" {ratio:.3f} |"
            )
    return lines


def singular(rng: np.random.Generator) -> list[str]:
    lines = [
        "| d | dsub | √(dsub/d) | smallest | largest | C needed |",
        "|---|---|---|---|---|---|",
    ]
    for d, dsub in ((610, 21), (7850, 50), (79510, 50), (10_000, 10), (10_000, 100), (1_000, 500)):
        low, high = [], []
        for _ in range(10):
            p = rng.standard_normal((dsub, d))
            p /= np.linalg.norm(p, axis=1, keepdims=True)
            s = np.sqrt(np.linalg.eigvalsh(p @ p.T))
            low.append(s[0])
            high.append(s[-1])
        scale = np.sqrt(dsub / d)
        needed = max(1 - min(low), max(high) - 1) / scale
        lines.append(
            f"| {d:,} | {dsub} | {scale:.4f} | {min(low):.4f} | {max(high):.4f} | {needed:.2f} |"
        )
    return lines


def figure(path: Path, w: np.ndarray, drawn: dict[str, np.ndarray]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "theory"
    import matplotlib.pyplot as plt

    made, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    lam = np.logspace(-4, 1, 100)
    for axis, attack in zip(axes, TAU, strict=True):
        exact = np.array([closed(float(x), attack, w) for x in lam])
        colours = ("#999999", "#E69F00", "#D55E00", "#0072B2")
        for j, name in enumerate(("Local", "FedAvg", "pFedMe = Ditto", "lp-proj-2")):
            axis.plot(lam, exact[:, j], color=colours[j], label=name)
            axis.plot(LAMBDAS, drawn[attack][:, :, j].mean(0), "o", ms=3, color=colours[j])
        axis.set(xscale="log", yscale="log", xlabel="λ", title=attack)
    axes[0].set_ylabel("mean test loss of benign clients")
    axes[0].legend(fontsize=7)
    made.tight_layout()
    made.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    robust, drawn = robustness(rng)
    figure(HERE / "figure-1.svg", truths(np.random.default_rng(0)), drawn)
    pages = [
        "# lp-proj's propositions",
        "",
        "`python experiments/lp-proj/theory/experiment.py`; figure-1.svg draws the first table.",
        "",
        "## Proposition 16 and Figure 1: robustness",
        "",
        *robust,
        "",
        "## Proposition 18: fairness",
        "",
        *fairness(rng),
        "",
        "## Proposition 24: singular values of P (Gaussian rows of length 1, 10 draws)",
        "",
        *singular(rng),
        "",
    ]
    (HERE / "result.md").write_text("\n".join(pages), encoding="utf-8")
    print("\n".join(pages))
