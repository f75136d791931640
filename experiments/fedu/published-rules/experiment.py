"""What the published code's SCAFFOLD, MOCHA and Per-FedAvg do in FedU's Table I on HAR.

The code (github.com/CharlieDinh/FedU_FMTL, at commit fca6b56 and, for who is down-sampled by
mocha.py, c406c72) was read; its rules are written down here anew, in NumPy, and run. Each rule that
differs from the method's paper is run beside the paper's.

    python experiments/fedu/published-rules/experiment.py    # → runs.csv, result.md
    python experiments/tables_to_csv.py                      # → result.csv

It can be killed and repeated: runs that are in runs.csv are not made again.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from nets import Array, Net, correct, gradient, init
from numpy.typing import NDArray

import coterie

HERE = Path(__file__).parent
SEEDS, ROUNDS, EPOCHS, BATCH = 3, 200, 5, 20
FEATURES, LABELS = 561, {"convex": 6, "nonconvex": 12}
"""The published perceptron has 12 outputs for six activities."""


class Person(NamedTuple):
    """A client's rows."""

    x: Array
    y: NDArray[np.int64]
    test_x: Array
    test_y: NDArray[np.int64]

    @property
    def step_size(self) -> int:
        """What the code takes for a batch's size when it counts batches; the batches have 20."""
        return BATCH if len(self.y) >= 200 else int(len(self.test_y) / 10)

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        """An epoch in a fresh order; the last batch may be short."""
        order = rng.permutation(len(self.y))
        for at in range(0, len(order), BATCH):
            rows = order[at : at + BATCH]
            yield self.x[rows], self.y[rows]

    def endless(self, rng: np.random.Generator) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        while True:
            yield from self.batches(rng)


def people(seed: int, share: float) -> list[Person]:
    """HAR's 30 people; of a share of them 20% of the training and 40% of the test rows are kept."""
    fed = coterie.load("har", seed=seed, validation=0.0, protocol="paper")
    rng = np.random.default_rng([seed, 1])
    cut = set(rng.choice(fed.clients, int(share * fed.clients), replace=False).tolist())
    found = []
    for k in range(fed.clients):
        rows = []
        for split, kept in ((fed.train, 0.2), (fed.test, 0.4)):
            x, y = split.client(k)
            x, y = np.asarray(x, np.float32), np.asarray(y, np.int64)
            some = rng.permutation(len(y))[: math.ceil(kept * len(y))] if k in cut else slice(None)
            rows += [x[some], y[some]]
        found.append(Person(*rows))
    return found


def cohort(t: int, seed: int, count: int) -> list[int]:
    """Three clients of 30, the same for every method."""
    drawn = np.random.RandomState(t * (seed + 2)).choice(count, count // 10, replace=False)
    return [int(k) for k in drawn]


def scored(nets: list[Net], clients: list[Person]) -> tuple[float, float]:
    """Accuracy in per cent: by test samples, which the code prints first, and the mean over
    clients.
    """
    right = [correct(net, c.test_x, c.test_y) for net, c in zip(nets, clients, strict=True)]
    sizes = [len(c.test_y) for c in clients]
    mean = np.mean([r / n for r, n in zip(right, sizes, strict=True)])
    return 100 * sum(right) / sum(sizes), 100 * float(mean)


def scaffold(
    lr: float, *, scaled: bool, first: bool, epochs: int = EPOCHS
) -> Callable[[str, int], tuple[float, float]]:
    """`scaled`: the code divides a client's way by the batches of one epoch, not of all five, so a
    control is about five times the mean gradient (of the down-sampled about right, because their
    batches are counted by `step_size`). `first`: its optimiser moves the first array of parameters
    only, so biases and later layers stay as they were drawn.
    """

    def run(kind: str, seed: int) -> tuple[float, float]:
        clients = people(seed, 0.5)
        rng, model = np.random.default_rng([seed, 2]), net_of(kind)
        trained = range(1) if first else range(len(model))
        zeros = lambda: [np.zeros_like(p) for p in model]
        c, own = zeros(), [zeros() for _ in clients]
        for t in range(ROUNDS):
            moves, changes = zeros(), zeros()
            chosen = cohort(t, seed, len(clients))
            for k in chosen:
                y, steps = [p.copy() for p in model], 0
                for _ in range(epochs):
                    for bx, by in clients[k].batches(rng):
                        g = gradient(y, bx, by)
                        for i in trained:
                            y[i] -= lr * (g[i] + c[i] - own[k][i])
                        steps += 1
                counted = math.ceil(len(clients[k].y) / clients[k].step_size) if scaled else steps
                for i in trained:
                    moved = y[i] - model[i]
                    new = own[k][i] - c[i] - moved / (counted * lr)
                    changes[i] += (new - own[k][i]) / len(clients)
                    own[k][i] = new
                    moves[i] += moved / len(chosen)
            for i in trained:
                model[i] = model[i] + moves[i]
                c[i] = c[i] + changes[i]
        return scored([model] * len(clients), clients)

    return run


def mocha(share: float) -> Callable[[str, int], tuple[float, float]]:
    """Local SGD with a penalty on models of the cohort, times 100^−5 with HAR's 3,372 numbers."""

    def run(kind: str, seed: int) -> tuple[float, float]:
        lr, K = 0.03, 1000
        clients = people(seed, share)
        rng = np.random.default_rng([seed, 3])
        nets = [net_of(kind) for _ in clients]
        for _ in range(ROUNDS):
            chosen = rng.choice(len(clients), len(clients) // 10, replace=False)
            m = len(chosen)
            omega = np.full((m, m), (1 - 1 / m) ** 2, np.float32)  # its I is all ones
            flat = lambda net: np.concatenate([net[0].T.ravel(), net[1]])
            before = np.stack([flat(nets[k]) for k in chosen], 1)
            scale = 100.0 ** -(int(math.log10(len(before)) + 1) + 1)
            blocks = len(before) // K * K
            for at, k in enumerate(chosen):
                net, W = nets[k], before.copy()
                for _ in range(EPOCHS):
                    for bx, by in clients[k].batches(rng):
                        W[:, at] = flat(net)
                        pull = 2 * W[:, at]
                        pull[:blocks] += 2 * (W[:blocks] @ omega[:, at])
                        g, pull = gradient(net, bx, by), scale * pull
                        size = net[0].size
                        net[0] -= lr * (g[0] + pull[:size].reshape(net[0].shape[::-1]).T)
                        net[1] -= lr * (g[1] + pull[size:])
        return scored(nets, clients)

    return run


def per_fedavg(
    *, counted: bool, at: float | None = None, share: float = 0.5, adapted: bool = True
) -> Callable[[str, int], tuple[float, float]]:
    """Two steps in a row, the second with the step 0.001. `counted`: the code counts batches by
    `step_size`, which for down-sampled clients is 2 to 4, though their batches have 20 rows.
    Before it measures, every client takes the first step on a batch of *test* rows, the second on
    one of training rows; `adapted` = False leaves both out.
    """

    def run(kind: str, seed: int) -> tuple[float, float]:
        lr, second = at or {"convex": 0.01, "nonconvex": 0.03}[kind], 0.001
        clients = people(seed, share)
        rng, model = np.random.default_rng([seed, 4]), net_of(kind)
        feeds = [c.endless(rng) for c in clients]
        for t in range(ROUNDS):
            found = []
            chosen = cohort(t, seed, len(clients))
            for k in chosen:
                net = [p.copy() for p in model]
                size = clients[k].step_size if counted else BATCH
                for _ in range(EPOCHS * (len(clients[k].y) // size)):
                    for step in (lr, second):
                        bx, by = next(feeds[k])
                        net = [
                            p - step * g for p, g in zip(net, gradient(net, bx, by), strict=True)
                        ]
                found.append(net)
            weights = np.array([len(clients[k].y) for k in chosen], float)
            weights /= weights.sum()
            model = [
                sum(w * net[i] for w, net in zip(weights, found, strict=True)).astype(np.float32)
                for i in range(len(model))
            ]
        if not adapted:
            return scored([model] * len(clients), clients)
        own = []
        for c, feed in zip(clients, feeds, strict=True):
            rows = rng.permutation(len(c.test_y))[:BATCH]
            net = [p.copy() for p in model]
            for step, (bx, by) in ((lr, (c.test_x[rows], c.test_y[rows])), (second, next(feed))):
                net = [p - step * g for p, g in zip(net, gradient(net, bx, by), strict=True)]
            own.append(net)
        return scored(own, clients)

    return run


def net_of(kind: str) -> Net:
    hidden = (100,) if kind == "nonconvex" else ()
    return init((FEATURES, *hidden, LABELS[kind]))


BOTH = ("convex", "nonconvex")
CASES: dict[str, tuple[Callable[[str, int], tuple[float, float]], tuple[str, ...]]] = {
    "SCAFFOLD, step 0.05": (scaffold(0.05, scaled=False, first=False), BOTH),
    "… step 0.02": (scaffold(0.02, scaled=False, first=False), BOTH),
    "… step 0.005": (scaffold(0.005, scaled=False, first=False), BOTH),
    "… controls five times too large": (scaffold(0.05, scaled=True, first=False), BOTH),
    "… the first weights only": (scaffold(0.05, scaled=False, first=True), BOTH),
    "… both, as the code": (scaffold(0.05, scaled=True, first=True), BOTH),
    "… both, step 0.03": (scaffold(0.03, scaled=True, first=True), BOTH),
    "… both, one epoch a round, step 0.03": (
        scaffold(0.03, scaled=True, first=True, epochs=1),
        BOTH,
    ),
    "… both, one epoch a round, step 0.05": (
        scaffold(0.05, scaled=True, first=True, epochs=1),
        BOTH,
    ),
    "… both, one epoch a round, step 0.1": (
        scaffold(0.1, scaled=True, first=True, epochs=1),
        BOTH,
    ),
    "MOCHA as the code, half down-sampled": (mocha(0.5), BOTH[:1]),
    "MOCHA as the code, 90% down-sampled": (mocha(0.9), BOTH[:1]),
    "Per-FedAvg in a row, batches counted": (per_fedavg(counted=False), BOTH),
    "Per-FedAvg as the code": (per_fedavg(counted=True), BOTH),
    "… with the convex model's step, 0.01": (per_fedavg(counted=True, at=0.01), BOTH[1:]),
    "… 90% down-sampled": (per_fedavg(counted=True, share=0.9), BOTH),
    "… measured before it adapts": (per_fedavg(counted=True, adapted=False), BOTH),
}
PAPER = {
    "SCAFFOLD": ("93.61 ± 0.37", "94.78 ± 0.85"),
    "MOCHA": ("92.33 ± 0.67", ""),
    "Per-FedAvg": ("94.78 ± 0.37", "94.80 ± 0.60"),
}
HEAD = ("rule", "model", "seed", "by samples", "mean over clients")
Found = dict[tuple[str, str, int], tuple[float, float]]


def read() -> Found:
    path = HERE / "runs.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    return {
        (r["rule"], r["model"], int(r["seed"])): (float(r[HEAD[3]]), float(r[HEAD[4]]))
        for r in rows
    }


def write(found: Found) -> None:
    with (HERE / "runs.csv").open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(HEAD)
        out.writerows([*key, *(f"{v:.4f}" for v in values)] for key, values in found.items())
    (HERE / "result.md").write_text("\n".join(told(found)) + "\n", encoding="utf-8")


def told(found: Found) -> list[str]:
    lines = [
        "# FedU's Table I on HAR by the rules of the published code",
        "",
        "`python experiments/fedu/published-rules/experiment.py`: accuracy on test data in % after"
        f" {ROUNDS} rounds, ± deviation over {SEEDS} splits; by test samples, and the mean over"
        " clients.",
        "",
        "| rule | model | by samples | mean over clients | paper |",
        "|---|---|---|---|---|",
    ]
    title = ""
    for name, (_, kinds) in CASES.items():
        title = title if name.startswith("…") else name.split(",")[0].split(" ")[0]
        for kind in kinds:
            values = np.array([v for key, v in found.items() if key[:2] == (name, kind)])
            if not len(values):
                continue
            mean, wide = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else (0.0, 0.0)
            cells = " | ".join(f"{m:.2f} ± {w:.2f}" for m, w in zip(mean, wide, strict=True))
            lines.append(f"| {name} | {kind} | {cells} | {PAPER[title][BOTH.index(kind)]} |")
    return lines


if __name__ == "__main__":
    found = read()
    for name, (run, kinds) in CASES.items():
        for key in ((name, kind, seed) for kind in kinds for seed in range(SEEDS)):
            if key not in found:
                found[key] = run(key[1], key[2])
                write(found)
                print(*key, *(f"{v:.2f}" for v in found[key]), flush=True)
    write(found)
    sys.exit(0)
