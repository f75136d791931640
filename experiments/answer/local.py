"""Is Local, tuned as in the answer, as good as scikit-learn's logistic (ridge) regression at each
site? On made-up tables with the training rows of `worlds.py` and many more test rows, so that a
difference of half a point can be seen.

python experiments/answer/local.py --draws 10      # local.csv, local.md
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
from worlds import FEATURES, rule

import coterie
from coterie.core.metrics import metric_of
from coterie.runs.presets import own_batch, own_options
from coterie.runs.references import references

HERE = Path(__file__).parent
SITES, TRAIN, TEST = 12, 29, 400
KINDS = ("one rule", "unrelated rules", "two clusters", "one rule, a number")


def federation(kind: str, draw: int) -> coterie.Federation:
    """12 sites with 29 rows to learn from and 400 to test on."""
    rng = np.random.default_rng([draw, KINDS.index(kind)])
    drawn = rule(rng, SITES) if kind == "unrelated rules" else np.repeat(rule(rng), SITES, 0)
    if kind == "two clusters":
        drawn = drawn * np.where(np.arange(SITES) % 2, 1, -1)[:, None]
    owner = np.repeat(np.arange(SITES), TRAIN + TEST)
    x = rng.normal(size=(len(owner), FEATURES)).astype(np.float32)
    value = np.einsum("ij,ij->i", x, drawn[owner]) + rng.normal(size=len(owner))
    share = TEST / (TRAIN + TEST)
    number = kind.endswith("number")
    y = value.astype(np.float32) if number else (value > 0).astype(np.int32)
    task: Any = "regression" if number else "classification"
    more = {} if number else {"classes": 2}
    return coterie.from_arrays(
        kind, x, y, owner, task=task, test=share, validation=0.01, seed=draw, **more
    )


def scored(fed: coterie.Federation) -> tuple[float, float]:
    """Local's mean score over sites, and that of the model off the shelf."""
    training: Any = {"rounds": 60, "eval_every": 60, "batch_size": own_batch(fed)}
    local = coterie.Local(**own_options(fed, "mlr")["local"])
    steps = 8 * 5 * 60 * local.local_steps
    (tuned,) = coterie.tune(fed, [local], training=training, steps=steps, folds=5, decay=True)
    found = coterie.simulate(tuned.method, fed, seed=0, **training)
    ours = float(np.mean(found.snapshots[-1].scores["test"].score[0]))
    shelf = references(fed, seconds=0.0, say=lambda _: None)[0]
    outputs = np.exp(shelf.outputs) if fed.task == "classification" else shelf.outputs
    theirs = metric_of(None, fed.task).scores(outputs, fed.test.y, fed.test.offsets)
    return ours, float(np.mean(theirs))


def main(draws: int) -> None:
    file = HERE / "local.csv"
    rows = list(csv.DictReader(file.open())) if file.is_file() else []
    done = {(r["table"], int(r["draw"])) for r in rows}
    for draw in range(draws):
        for kind in KINDS:
            if (kind, draw) in done:
                continue
            ours, theirs = scored(federation(kind, draw))
            rows.append({"table": kind, "draw": draw, "local": ours, "shelf": theirs})
            with file.open("w", newline="") as f:
                table = csv.DictWriter(f, tuple(rows[0]))
                table.writeheader()
                table.writerows(rows)
            summary(rows)


def summary(rows: list[dict[str, Any]]) -> None:
    lines = [
        "Scores (accuracy; minus the mean squared error): means over draws, and the difference with"
        " its standard error.\n",
        "| table | draws | Local, tuned | scikit-learn, each alone | difference |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        mine = [(float(r["local"]), float(r["shelf"])) for r in rows if r["table"] == kind]
        if not mine:
            continue
        a = np.array(mine)
        gap = a[:, 0] - a[:, 1]
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
        means = f"{a[:, 0].mean():.4f} | {a[:, 1].mean():.4f}"
        lines.append(f"| {kind} | {len(a)} | {means} | {gap.mean():+.4f} ± {error:.4f} |")
    (HERE / "local.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[2]) if len(sys.argv) > 2 else 10)
