"""What the tests of real peers look at."""

from __future__ import annotations

import numpy as np

from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.runs.export import tensors
from tests.support.bills import in_order
from tests.support.peering import NAMES, Town, simulated, the_digits

WELL = dict.fromkeys(NAMES, 0)
GO_ON = {"on_missing": "go-on", "patience": 6.0, "staleness": 2, "give_up": 300.0}
ENDLESS = 1_000_000
"""Rounds of a run that is stopped when what is to be seen was seen: nobody knows how fast this
machine is.
"""


def check_equal(
    town: Town,
    plan: Plan,
    rtol: float = 1e-5,
    names: tuple[str, ...] = NAMES,
    fed: Federation | None = None,
) -> None:
    """Models and bill are the simulator's."""
    simulator = simulated(plan, fed or the_digits())
    for k, name in enumerate(NAMES if isinstance(plan.clients, int) else plan.clients):
        for view, model in simulator.models(k).items():
            found = town.model(name, view)
            for part, expected in tensors(model).items():
                np.testing.assert_allclose(found[part], expected, rtol=rtol, atol=rtol / 10)
    rows = town.ledger(*names)
    rows = rows[rows[:, 0] < plan.training.rounds]
    alone = 0 if plan.peers else plan.alone  # peers bill these rounds, a hub asks nobody for them
    np.testing.assert_array_equal(in_order(rows, alone), in_order(simulator.ledger.rows(), alone))
