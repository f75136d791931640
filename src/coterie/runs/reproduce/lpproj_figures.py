"""lp-proj, Figures 2, 3, 5 to 9: all of them look at the runs of Tables 4 and 10.

Figures 2 and 6 have the accuracy and its variance between clients, 7 the same of the test loss, 9
the accuracy and its correlation with what a client reaches alone; 3, 5 and 8 are curves over
rounds. The paper shows the best round after the 20th, ours is the last. Figure 1 is theory
(experiments/lp-proj/theory), Figure 4 is in `lpproj_attacks`.
"""

from __future__ import annotations

import dataclasses

from coterie.runs.reproduce.base import (
    ACCURACY,
    COLLABORATION,
    LOSS,
    LOSS_VARIANCE,
    TRAIN_LOSS,
    VARIANCE,
    Block,
    Drawing,
    PaperTable,
    known,
)
from coterie.runs.reproduce.lpproj import TABLE_4, TABLE_10


def _plain(block: Block) -> Block:
    """Without the lines that are not in the paper."""
    lines = tuple(line for line in block.lines if not line.changes)
    return dataclasses.replace(block, lines=lines, tuned_with=block.lines)


EVEN = tuple(_plain(block) for block in TABLE_4.blocks)
SKEWED = tuple(_plain(block) for block in TABLE_10.blocks)
TWO = tuple(block for block in EVEN if block.name in ("emnist", "cifar10"))


def _figure(
    number: int, title: str, blocks: tuple[Block, ...], drawn: Drawing, measures: tuple[str, ...]
) -> PaperTable:
    return PaperTable(
        "lp-proj",
        f"figure-{number}",
        f"Figure {number}: {title}",
        blocks,
        measures=measures,
        drawn=drawn,
    )


FAIR = (ACCURACY, VARIANCE)
CURVES = (ACCURACY, TRAIN_LOSS)
known(
    _figure(2, "accuracy and fairness", TWO, "plane", FAIR),
    _figure(3, "training, EMNIST and CIFAR-10", TWO, "curves", CURVES),
    _figure(5, "training, all data sets", EVEN, "curves", CURVES),
    _figure(6, "accuracy and fairness, all data sets", EVEN, "plane", FAIR),
    _figure(7, "test loss and its variance", EVEN, "plane", (LOSS, LOSS_VARIANCE)),
    _figure(8, "training, sizes by a power law", SKEWED, "curves", CURVES),
    _figure(9, "accuracy and collaboration fairness", EVEN, "plane", (ACCURACY, COLLABORATION)),
)
