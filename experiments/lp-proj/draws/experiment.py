"""How much of a number in lp-proj's Table 4 is the draw of Synthetic(0, 0): the paper has one draw
of the data, and repeats training ten times on it.

Local as in the published code (one step a round at every client, 200 rounds, lr 0.1, batches of
64, a fifth of the rows for testing, a fifth of the rest used by nobody), and lp-proj-2 with R·K =
1·20 steps (lr 0.1, personal_lr 0.1, λ = 0.1). "Draws": ten draws of the data, one training each.
"Trainings": one draw, ten trainings. Sizes: 202 and 316 samples (of 316 a client trains on 202).

    python experiments/lp-proj/draws/experiment.py        # → points.csv, result.md
"""

import csv
from pathlib import Path

import numpy as np

import coterie

SIZES, REPEATS = (202, 316), 10
METHODS = {
    "Local": coterie.Local(local_steps=1, lr=0.1, trains="all"),
    "lp-proj-2": coterie.LpProj2(
        local_rounds=1, inner_steps=20, personal_lr=0.1, lr=0.1, lam=0.1, dsub=21
    ),
}
PAPER = {"Local": "86.65 ± 0.16, loss 0.252", "lp-proj-2": "88.67 ± 0.13, loss 0.082"}


def run(method: coterie.Method, size: int, draw: int, seed: int) -> tuple[float, float]:
    """Accuracy on test data in per cent and training loss, mean over clients, last round."""
    fed = coterie.load(
        "synthetic", sizes="equal", mean_size=size, test=0.2, validation=0.16, seed=draw
    )
    training = {"rounds": 200, "eval_every": 200, "batch_size": 64, "fraction": 0.1}
    result = coterie.simulate(method, fed, "mlr", seed=seed, train_metrics=True, **training)
    scores = result.snapshots[-1].scores
    return 100 * float(scores["test"].score[0].mean()), float(scores["train"].loss[0].mean())


def main() -> None:
    here = Path(__file__).parent
    rows = []
    for size in SIZES:
        for name, method in METHODS.items():
            for kind in ("draws", "trainings"):
                for i in range(REPEATS):
                    found = run(method, size, i if kind == "draws" else 0, i)
                    rows.append((size, name, kind, i, f"{found[0]:.4f}", f"{found[1]:.5f}"))
                print(size, name, kind, flush=True)
    with (here / "points.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("samples", "method", "repeated", "number", "accuracy", "train loss"))
        writer.writerows(rows)
    lines = [
        "# One draw of Synthetic(0, 0) against the next",
        "",
        "`python experiments/lp-proj/draws/experiment.py`: accuracy on test data in % and training"
        f" loss, last of 200 rounds, mean ± deviation of {REPEATS}.",
        "",
        "| samples a client | method | draws of the data | trainings on one draw | paper |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        for name in METHODS:
            cells = []
            for kind in ("draws", "trainings"):
                mine = np.array([r[4:] for r in rows if r[:3] == (size, name, kind)], float)
                mean, spread = mine.mean(0), mine.std(0, ddof=1)
                cells.append(f"{mean[0]:.2f} ± {spread[0]:.2f}, loss {mean[1]:.3f}")
            lines.append(f"| {size} | {name} | {' | '.join(cells)} | {PAPER[name]} |")
    (here / "result.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
