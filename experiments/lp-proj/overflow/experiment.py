"""Why lp-proj-1 survives 50% sign-flips where the hub counts a lie that is not finite as not sent.

The setting of `synthetic-00-equal-attack` (Synthetic(0, 0), 202 samples each), seeds 0, 1, 2, after
every round: how large w̃ is, and how many lies were dropped. Once in float32, as in the tables, and
once in float64, whose largest number is 1.8e308: there nothing needs to be dropped. The liars'
factors c are other draws in float64.

    python experiments/lp-proj/overflow/experiment.py > experiments/lp-proj/overflow/result.md
    python experiments/tables_to_csv.py                    # → result.csv
"""

from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.adversary import get_attack
from coterie.core.errors import Diverged
from coterie.engine.simulator import Simulator
from coterie.methods.base import method
from coterie.runs.experiment import Experiment

HERE = Path(__file__).parent
SETTING = HERE.parent / "synthetic-00-equal-attack" / "experiment.toml"
CASES = [
    ("lp-proj-1", 0.5, "float32"),
    ("lp-proj-2", 0.5, "float32"),
    ("lp-proj-1", 0.8, "float32"),
    ("lp-proj-1, older hub", 0.8, "float32"),
    ("lp-proj-1", 0.5, "float64"),
    ("lp-proj-2", 0.5, "float64"),
]
FROM = 10
"""Growth is measured from this round to the last one before a lie is dropped."""
HEAD = (
    "method", "liars", "numbers", "seed", "honest clients' accuracy, last round", "lies dropped",
    "first in round", "growth of w̃ a round", "size of w̃ at the end", "largest size of w̃",
    "collapsed",
)  # fmt: skip


@method("lp-proj-1-older", title="lp-proj-1, older hub", paper=coterie.LpProj1.paper)
class Older(coterie.LpProj1):
    """lp-proj-1 whose hub takes mean + (1 − β)(w̃ − mean), as ours did until 18 November 2026: at
    β = 1 that is 0 · inf where w̃ − mean leaves float32.
    """

    def next(self, kept: Any, mean: Any, t: Any) -> Any:
        return mean + 0.0 * (kept - mean)


def size(simulator: Simulator) -> float:
    return float(np.abs(np.asarray(simulator.hub)).max())


def growth(sizes: list[float]) -> float:
    """The mean factor per round; sizes[t] is that after round t + 1."""
    return float((sizes[-1] / sizes[FROM - 1]) ** (1 / (len(sizes) - FROM)))


def run(experiment: Experiment, case: tuple[str, float, str], seed: int) -> list[str]:
    name, share, precision = case
    found = next(m for m in experiment.methods if name.startswith(m.name))
    asked = Older(**found.to_config()) if name.endswith("older hub") else found
    training = experiment.training.replace(seed=seed, precision=precision)
    attack = get_attack("sign-flip", {"fraction": share})
    simulator = Simulator(asked, experiment.federation(), experiment.model, training, attack=attack)
    sizes: list[float] = []
    first, collapsed, score = None, "", "–"
    while simulator.t < training.rounds:
        try:
            simulator.advance(1)
        except Diverged as error:
            where = "clients" if np.isfinite(size(simulator)) else "hub"
            collapsed = f"round {error.round}, {where}"
            break
        sizes.append(size(simulator))
        if first is None and simulator.unsent:
            first = simulator.t
    if not collapsed:
        accuracy = simulator.evaluate().scores["test"].score[0]
        score = f"{100 * np.nanmean(accuracy):.2f}"  # liars have none
    calm = sizes if first is None else sizes[: first - 1]
    return [
        name, f"{share:.0%}", precision, str(seed), score, str(simulator.unsent),
        str(first or "never"), f"{growth(calm):.2f}", f"{sizes[-1]:.1e}", f"{max(sizes):.1e}",
        collapsed or "no",
    ]  # fmt: skip


def main() -> None:
    experiment = Experiment.from_file(SETTING)
    print("# lp-proj under sign-flips: what happens when lies leave float32\n")
    print(
        "`python experiments/lp-proj/overflow/experiment.py`: the setting of"
        " [synthetic-00-equal-attack](../synthetic-00-equal-attack/result.md), 100 rounds. Accuracy"
        " on test data in %, mean over honest clients. A lie that is not finite is dropped, and w̃"
        " is the mean of the other messages. float32 ends at 3.4e38. The size of w̃ is that of its"
        f" largest coordinate; growth is its mean factor a round, from round {FROM} until a lie is"
        ' dropped. A collapsed run has no score; its "end" is the round before, and "hub" or'
        ' "clients" is what was not finite. "Older hub": w̃ is mean +'
        " (1 − β)(w̃ − mean), as it was until this experiment had shown that at β = 1 this is"
        " 0 · inf where w̃ − mean leaves float32; now it is the mean.\n"
    )
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    for case in CASES:
        for seed in experiment.seeds:
            print("| " + " | ".join(run(experiment, case, seed)) + " |", flush=True)


if __name__ == "__main__":
    main()
