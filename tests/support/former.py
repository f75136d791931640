"""A run in its middle, as the former version of coterie left it on disk (tests/deploy/former).

Before the format of state files changes, the version that still writes the old one makes it:

    python -m tests.support.former tests/deploy/former
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from coterie.data.federation import Federation, from_arrays
from coterie.deploy.plan import Plan
from tests.support.room import CLIENTS, Room, make_plan

DONE = 2
"""Rounds that the former version did."""


def federation() -> Federation:
    rng = np.random.default_rng(3)
    x, client = rng.standard_normal((12 * CLIENTS, 3)), np.repeat(np.arange(CLIENTS), 12)
    y = (x @ rng.standard_normal((3, 2))).argmax(1)
    return from_arrays("former", x + 0.3 * client[:, None], y, client)


def plan(fed: Federation) -> Plan:
    return make_plan(fed, "fedu", rounds=4)


def main(folder: Path) -> None:
    fed = federation()
    room = Room(plan(fed), fed, folder)
    for _ in range(DONE):
        room.round()
    for path in folder.rglob("*"):
        if path.name in (".lock", "ledger.parquet", "status.json", "scores.jsonl"):
            path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
