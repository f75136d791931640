"""lp-proj, Tables 1, 5 and 11: what a budget of bytes buys, and what a target costs.

What the paper calls bytes are numbers that were sent (FedAvg on Synthetic: 2·610 for each of 10
clients is 12,200 a round). Ours are bytes of encoded messages, up and down, divided by four, so
that a number that is sent whole counts as one. The paper counts a download of everybody for lp-proj
and of the sampled clients for FedAvg; here whoever receives something counts. Sketch, LBGM, QSGD
and DGC are FedAvg whose messages are compressed, with a model that every client fine-tunes on its
own data (`fedbabu` with `shared = "*"`), as the paper personalises them, by as many steps as a
round has: 20 on Synthetic, 6 elsewhere. Everybody is tuned with the same budget.
"""

from __future__ import annotations

import dataclasses

from coterie.runs.reproduce.base import AT_BUDGET, TO_TARGET, Block, Config, Line, PaperTable, known
from coterie.runs.reproduce.lpproj import (
    PARTS,
    TRAINING,
    UNBALANCED,
    block_of,
    methods_of,
    steps_of,
)
from coterie.runs.reproduce.printed import numbers

EVERY = (
    "bytes are counted as numbers of 4 bytes; gradients are those of training, and a model that is"
    " fine-tuned takes as many steps as a round has besides, whenever it is looked at; the"
    " channels' own options are ours and not tuned"
)


def channels_of(name: str) -> dict[str, Config]:
    """What messages go through, by method; small models send a larger share."""
    share = 0.05 if PARTS[name][2]["name"] == "mlr" else 0.01
    return {
        "Sketch": {"name": "sketch", "share": share, "columns": share},
        "LBGM": {"name": "lbgm"},
        "QSGD": {"name": "qsgd"},
        "DGC": {"name": "dgc", "share": share},
    }


def bytes_block(table: str, name: str) -> Block:
    paper, methods, channels = numbers(table, name), methods_of(name), channels_of(name)
    lines = []
    for label, found in paper.items():
        more = {k: found[k] for k in (AT_BUDGET, TO_TARGET)}
        if label in channels:
            steps = {"local_steps": steps_of(name), "adapt_steps": steps_of(name)}
            method = {"name": "fedbabu", "shared": "*", **steps, "channel": channels[label]}
            lines.append(Line(label, method, "", "personal", True, more=more))
        else:
            lines.append(Line(label, methods[label], "", None, True, more=more))
    lines.append(Line("Local", methods["Local"], tuned=True))
    made = block_of(name, tuple(lines), alone=False)
    training = {**TRAINING, "eval_every": 1}
    del training["train_metrics"]
    return dataclasses.replace(
        made,
        experiment={**made.experiment, "training": training},
        budget=float(paper["FedAvg"]["budget"]),
        target=float(paper["FedAvg"]["target"]),
        differs=f"{made.differs}; {EVERY}",
    )


def _table(number: str, title: str, blocks: tuple[Block, ...]) -> PaperTable:
    return PaperTable(
        "lp-proj",
        number,
        title,
        blocks,
        measures=(AT_BUDGET, TO_TARGET),
        drawn="bytes",
    )


BALANCED = tuple(bytes_block("table-5", name) for name in PARTS if name != UNBALANCED)
known(
    _table(
        "table-1",
        "Table 1: communication (a part of Table 5)",
        tuple(block for block in BALANCED if block.name in ("synthetic-00", "emnist")),
    ),
    _table("table-5", "Table 5: communication", BALANCED),
    _table(
        "table-11",
        "Table 11: communication, sizes by a power law",
        (bytes_block("table-11", UNBALANCED),),
    ),
)
