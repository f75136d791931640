"""Why lp-proj-1 survives sign-flips in the paper: PyTorch's sign of NaN is 0, so a client whose hub
has broken trains alone.

lp-proj-1 (and the same with P = I, the only RSA in the published code: signs at the clients, a
plain mean at the hub) on Synthetic(0, 0), everybody with 202 samples, under sign-flips, written
once more from Alg. 1 in plain NumPy (of coterie only the data and who lies), with the two possible
answers to sign(NaN).

    python experiments/lp-proj/broken-hub/experiment.py        # → result.md
"""

import numpy as np

import coterie
from coterie.adversary import draw_malicious

ROUNDS, COHORT, BATCH, R, K, LR, HUB_LR, DSUB = 120, 10, 64, 5, 10, 0.1, 0.1, 21


def sign(v: np.ndarray, of_nan: float) -> np.ndarray:
    return np.where(np.isnan(v), of_nan, np.sign(v)).astype(np.float32)


def run(
    fed, p, lam: float, share: float, seed: int, of_nan: float
) -> tuple[int | None, np.ndarray]:
    """The first round after which the hub is not finite, and every client's test accuracy after the
    last round (NaN: a broken model).
    """
    rng = np.random.default_rng(seed)
    n = fed.clients
    x = np.stack(
        [fed.train.x[a:b] for a, b in zip(fed.train.offsets, fed.train.offsets[1:], strict=False)]
    )
    y = np.stack(
        [fed.train.y[a:b] for a, b in zip(fed.train.offsets, fed.train.offsets[1:], strict=False)]
    )
    x = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    hot = np.eye(10, dtype=np.float32)
    theta = np.zeros((n, x.shape[-1] * 10), np.float32)
    w = np.zeros(p.shape[0] if p is not None else theta.shape[1], np.float32)
    project = (lambda t: t @ p.T) if p is not None else lambda t: t
    back = (lambda s: s @ p) if p is not None else lambda s: s
    malicious, broken = draw_malicious(seed, n, share), None
    for t in range(ROUNDS):
        mine = np.repeat(w[None], n, 0)
        for _ in range(R):
            rows = rng.permuted(np.tile(np.arange(x.shape[1]), (n, 1)), axis=1)[:, :BATCH]
            bx, by = np.take_along_axis(x, rows[..., None], 1), np.take_along_axis(y, rows, 1)
            for _ in range(K):
                z = bx @ theta.reshape(n, -1, 10)
                e = np.exp(z - z.max(-1, keepdims=True))
                g = np.swapaxes(bx, 1, 2) @ (e / e.sum(-1, keepdims=True) - hot[by]) / BATCH
                theta = theta - LR * (
                    g.reshape(n, -1) + lam * back(sign(project(theta) - mine, of_nan))
                )
            mine = mine - HUB_LR * lam * sign(mine - project(theta), of_nan)
        sampled = rng.choice(n, COHORT, replace=False)
        sent = mine[sampled]
        sent = np.where(
            malicious[sampled][:, None],
            -np.abs(10 * rng.standard_normal((COHORT, 1))).astype(np.float32) * sent,
            sent,
        )
        w = sent.mean(0)
        if broken is None and not np.isfinite(w).all():
            broken = t + 1
    correct = []
    for k in range(n):
        a, b = fed.test.offsets[k : k + 2]
        scores = np.concatenate([fed.test.x[a:b], np.ones((b - a, 1), np.float32)], 1) @ theta[
            k
        ].reshape(-1, 10)
        correct.append(
            np.mean(scores.argmax(1) == fed.test.y[a:b]) if np.isfinite(theta[k]).all() else np.nan
        )
    return broken, 100 * np.array(correct)


def main() -> None:
    np.seterr(all="ignore")
    fed = coterie.load("synthetic", sizes="equal", mean_size=202)
    p = np.random.default_rng(7).standard_normal((DSUB, 610)).astype(np.float32)
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    print(
        "| method | liars | sign(NaN) | hub broken after round | honest clients' accuracy after"
        " round 120 |\n| --- | --- | --- | --- | --- |"
    )
    cases = [(0.0, 0.0), (0.1, 0.0), (0.5, np.nan), (0.5, 0.0), (0.8, 0.0)]
    alone = run(fed, p, 0.0, 0.0, 0, 0.0)[1]
    for share in (0.0, 0.1, 0.5, 0.8):
        print(
            f"| Local, the same steps (λ = 0) | {share:.0%} | | |"
            f" {alone[~draw_malicious(0, fed.clients, share)].mean():.1f} |",
            flush=True,
        )
    for name, matrix, lam in (
        ("lp-proj-1, λ = 0.1", p, 0.1),
        ("L1 with P = I, λ = 0.1", None, 0.1),
    ):
        for share, of_nan in cases:
            broken, all_scores = run(fed, matrix, lam, share, 0, of_nan)
            score = all_scores[~draw_malicious(0, fed.clients, share)].mean()
            print(
                f"| {name} | {share:.0%} | {of_nan:g} | {broken or 'never'} | {score:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
