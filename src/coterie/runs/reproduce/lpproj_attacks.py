"""lp-proj under attack: Tables 6 to 9, 12 to 15, and Figure 4.

Methods and their tuned values are those of Tables 4 and 10 (nobody lies while tuning), the runs in
which nobody lies too. "Global" is FedAvg; its median and Krum (f = 2 of 10 messages) have the
values that were found for the mean. Scores are those of honest clients: accuracy, and how it varies
between them. A ★ of the paper is a run that collapsed.

Under the protocol "paper" the very same runs are measured as the published code does: by the best
round on test data after the 20th, which may lie before the attack has done its work.
"""

from __future__ import annotations

import dataclasses

from coterie.runs.reproduce.base import ACCURACY, VARIANCE, Block, Config, Line, PaperTable, known
from coterie.runs.reproduce.lpproj import PARTS, UNBALANCED, block_of, compared, methods_of
from coterie.runs.reproduce.printed import BYZANTINE, POISONED, attacked

ATTACKS: dict[str, tuple[str, Config, tuple[str, ...], str, str]] = {
    "same-value": ("same-value attacks", {"name": "same-value"}, BYZANTINE, "table-6", "table-12"),
    "sign-flip": ("sign-flipping attacks", {"name": "sign-flip"}, BYZANTINE, "table-7", "table-13"),
    "gaussian": ("Gaussian attacks", {"name": "gaussian"}, BYZANTINE, "table-8", "table-14"),
    "poisoned": ("data poisoning", {"name": "random-labels"}, POISONED, "table-9", "table-15"),
}
"""What it is called, the attack, shares of malicious clients, and the paper's two tables."""
GLOBAL: dict[str, Config] = {
    "Global+Mean": {},
    "Global+Median": {"merging": "median"},
    "Global+Krum": {"merging": "krum", "byzantine": 2},
}
AXIS = "malicious clients (%)"


def lines_of(table: str, name: str, attack: Config, shares: tuple[str, ...]) -> tuple[Line, ...]:
    """A line for every method and share; and Local, which no message reaches."""
    methods, found = methods_of(name), []
    for label, cells in attacked(table, name).items():
        method = methods["FedAvg" if label in GLOBAL else label]
        for share, (accuracy, variance) in zip(shares, cells, strict=True):
            fraction = float(share.rstrip("%")) / 100
            lie = {**attack, "fraction": fraction} if fraction else None
            found.append(
                Line(
                    *(label, method, accuracy, None, True),
                    more={VARIANCE: variance},
                    column=share,
                    x=100 * fraction,
                    changes=GLOBAL.get(label, {}),
                    attack=lie,
                )
            )
    return (*found, Line("Local", methods["Local"], tuned=True))


def attack_block(kind: str, name: str) -> Block:
    """One attack on one data set."""
    _, attack, shares, even, skewed = ATTACKS[kind]
    table = skewed if name == UNBALANCED else even
    base = compared("table-10" if name == UNBALANCED else "table-4", name)
    return block_of(
        name,
        lines_of(table, name, attack, shares),
        tuned_with=base,
        alone=False,
    )


def _table(kind: str, number: str, names: tuple[str, ...]) -> PaperTable:
    title = f"Table {number.removeprefix('table-')}: {ATTACKS[kind][0]}"
    skewed = ", sizes by a power law" if names == (UNBALANCED,) else ""
    return PaperTable(
        "lp-proj",
        number,
        f"{title}{skewed}, accuracy of honest clients",
        tuple(attack_block(kind, name) for name in names),
        measures=(ACCURACY, VARIANCE),
        drawn="sweep",
        axis=AXIS,
    )


def _figure_4() -> PaperTable:
    """A panel for every attack; the paper does not say in words which data set it is."""
    blocks = [
        dataclasses.replace(
            attack_block(kind, name),
            name=f"{name}-{kind}",
            title=f"{PARTS[name][0].partition(',')[0] if name == 'mnist' else 'Synthetic(0, 0)'}"
            f", {ATTACKS[kind][0]}",
        )
        for name in ("synthetic-00", "mnist")
        for kind in ATTACKS
    ]
    return PaperTable(
        "lp-proj",
        "figure-4",
        "Figure 4: robustness (the runs of Tables 6 to 9)",
        tuple(blocks),
        measures=(ACCURACY,),
        drawn="sweep",
        axis=AXIS,
    )


BALANCED = tuple(name for name in PARTS if name != UNBALANCED)
TABLES = (
    *(_table(kind, made[3], BALANCED) for kind, made in ATTACKS.items()),
    *(_table(kind, made[4], (UNBALANCED,)) for kind, made in ATTACKS.items()),
)
known(*TABLES, _figure_4())
known(*(dataclasses.replace(t, measured="after 20", protocol="paper") for t in TABLES))
