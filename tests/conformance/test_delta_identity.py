"""The delta channel with nothing cut off is the method without it, bit for bit, in both directions;
for every registered method.
"""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel import PLAIN
from coterie.channel.link import HEADER
from coterie.engine.exchange import exchange_of
from tests.support.conformance_cases import (
    NAMES,
    SAMPLED,
    TRAINING,
    everything,
    model_for,
    samples_cohorts,
    small,
    thinned,
    uneven_graph,
)

COPIES = PLAIN.replace(memory="copies", down=True)


@pytest.mark.parametrize(
    "name", thinned(n for n in NAMES if exchange_of(coterie.METHODS[n]()).kind in ("star", "graph"))
)
def test_public_copies_of_everything_change_no_bit(name: str, ragged: Federation) -> None:
    method = small(
        name, **({"neighbours": "all"} if "neighbours" in coterie.METHODS[name].public() else {})
    )
    options = SAMPLED if samples_cohorts(method) else TRAINING
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    without = coterie.simulate(method, ragged, model_for(method), graph=graph, **options)
    through = coterie.simulate(
        method, ragged, model_for(method), graph=graph, channel=COPIES, **options
    )
    if name in ("graph-proj", "apple"):
        # The hub follows P x through a mixing step as P x − s P Pᵀ pull, the client as P (x − s Pᵀ
        # pull); APPLE's sums of core models are one product for all clients that hear the same, and
        # one for each client that has a copy of its own: the same but for the last bit.
        one, two = everything(without), everything(through)
        for key in one:
            np.testing.assert_allclose(one[key], two[key], rtol=1e-12, atol=1e-14)
    else:
        one, two = everything(without), everything(through)
        for key in one:
            assert one[key].tobytes() == two[key].tobytes(), key
    # The bill is the same but for a version number in every message.
    plain, copied = without.ledger.rows(), through.ledger.rows()
    sent = (
        HEADER
        * (plain[:, 2] > 0)
        * (1 if getattr(method, "hub_between", True) else uneven_graph().degrees[plain[:, 1]])
    )
    np.testing.assert_array_equal(copied[:, 2], plain[:, 2] + sent)
