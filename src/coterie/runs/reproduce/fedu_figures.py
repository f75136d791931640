"""FedU, Figures 3 (η), 4 (which graph) and 5 (how unlike the clients are).

Figures 3 and 4: everybody in every round, half of the clients down-sampled, equal weights 1 in
Figure 3. Step sizes are tuned for everybody with the same budget; in Figure 4 η too, since the
paper adjusts it to the weights. "Weighted" and "Similar" read everybody's sizes or labels, which
nobody has in a federation: oracles. Figure 5: MNIST shared out by Dir_100(α), a tenth of the
clients in a round, convex; the paper's text does not say which model and how many clients in a
round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from coterie.runs.reproduce.base import ACCURACY, Block, Config, Line, PaperTable, known
from coterie.runs.reproduce.fedu import DATA, LABELS, TITLES, block_of, lines_of

ETAS = (1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1.0)
FEW = (1e-3, 1e-2, 5e-2)
"""Where a run takes long (MNIST, nonconvex)."""
GRAPHS = {
    "Random": {"kind": "random"},
    "Equal": {"kind": "equal"},
    "Weighted (oracle)": {"kind": "weighted"},
    "Similar (oracle)": {"kind": "similar"},
}
NAMES = ("har", "vehicle", "mnist")
DOWN: Config = {"downsample": 0.2}


def _tuned_once(line: Line, eta: float) -> Line:
    """FedU at another η, with the step size that was found at 0.01."""
    return dataclasses.replace(
        line, label="FedU", paper="", column=f"η = {eta:g}", x=eta, changes={"eta": eta}
    )


def _strengths(name: str, deep: bool) -> Block:
    fedu = Line("FedU", LABELS["FedU"], "", None, True, ("eta",))
    others = [
        Line(label, LABELS[label], "", None, True)
        for label in ("MOCHA", "Local", "Global")
        if not (deep and label == "MOCHA")
    ]
    few = deep and name == "mnist"
    lines = (*(_tuned_once(fedu, eta) for eta in (FEW if few else ETAS)), *others)
    made = block_of(name, deep, DOWN, None, lines)
    told = f"{len(FEW)} of the {len(ETAS)} values of η, since a run takes long"
    return dataclasses.replace(made, differs=told) if few else made


def _graphs(name: str, deep: bool) -> Block:
    lines = [
        Line(label, {**LABELS["FedU"], "graph": graph}, "", None, True)
        for label, graph in GRAPHS.items()
        if name == "mnist" or "Similar" not in label
    ]
    return block_of(name, deep, DOWN, None, (*lines, Line("Local", LABELS["Local"], tuned=True)))


def _unlike(alpha: float) -> Block:
    data = {**DATA["mnist"], "split": "dirichlet", "alpha": alpha}
    made = block_of("mnist", False, {}, 0.1, lines_of({}, False, True))
    return dataclasses.replace(
        made,
        name=f"alpha-{alpha:g}",
        title=f"{TITLES['mnist']}, Dir(α = {alpha:g}), convex",
        experiment={**made.experiment, "data": data},
        differs="the model and the clients in a round are not in the paper's text",
    )


def _panels(make: Callable[[str, bool], Block]) -> tuple[Block, ...]:
    """MNIST with the perceptron takes by far the longest in each figure, and is left out of `all`
    (`long`); without down-sampling it is in the tables.
    """
    panels = [
        (make(name, deep), deep and name == "mnist") for deep in (False, True) for name in NAMES
    ]
    return tuple(dataclasses.replace(block, long=block.long or long) for block, long in panels)


known(
    PaperTable(
        "fedu",
        "figure-3",
        "Figure 3: FedU at several η, MOCHA, Local and Global",
        _panels(_strengths),
        measures=(ACCURACY,),
        drawn="curves",
        axis="η",
    ),
    PaperTable(
        "fedu",
        "figure-4",
        "Figure 4: which graph",
        _panels(_graphs),
        measures=(ACCURACY,),
        drawn="curves",
    ),
    PaperTable(
        "fedu",
        "figure-5",
        "Figure 5: how unlike clients are",
        tuple(_unlike(alpha) for alpha in (10.0, 0.1, 0.01)),
        measures=(ACCURACY,),
        drawn="curves",
    ),
)
