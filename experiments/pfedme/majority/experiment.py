"""What always answering a client's most frequent class gives on the data of pFedMe's Table 1,
Synthetic(0.5, 0.5): accuracy on test data, over all samples (as the paper counts) and over clients.

    python experiments/pfedme/majority/experiment.py        # → result.md
"""

from pathlib import Path

import numpy as np

import coterie

SEEDS = range(10)


def score(seed: int) -> tuple[float, float]:
    """In per cent, over samples and over clients."""
    fed = coterie.load("synthetic", alpha=0.5, beta=0.5, protocol="paper", seed=seed)
    right, sizes = [], []
    for k in range(fed.clients):
        mine = fed.train.y[slice(*fed.train.offsets[k : k + 2])]
        test = fed.test.y[slice(*fed.test.offsets[k : k + 2])]
        right.append((test == np.bincount(mine).argmax()).sum())
        sizes.append(len(test))
    found, count = np.array(right), np.array(sizes)
    return 100 * found.sum() / count.sum(), 100 * (found / count).mean()


def main() -> None:
    found = np.array([score(seed) for seed in SEEDS])
    cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(found.mean(0), found.std(0, ddof=1), strict=True)]
    lines = [
        "# The most frequent class, Synthetic(0.5, 0.5)",
        "",
        f"`python experiments/pfedme/majority/experiment.py`: accuracy in %, {len(SEEDS)} splits.",
        "",
        "| over samples | over clients |",
        "|---|---|",
        f"| {' | '.join(cells)} |",
    ]
    (Path(__file__).parent / "result.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
