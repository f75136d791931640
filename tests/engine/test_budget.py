"""A budget on the wire: what it buys, and that it is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie import InvalidInput
from coterie.channel import get_channel
from coterie.channel.sparse import Delta
from coterie.engine.budget import CARRIERS, Run, payload, settle
from coterie.engine.pace import pace_of

GRAPH = coterie.learn_graph("kin", neighbours=3, after=2)


def spent(method: Any, through: Any, run: Run, over: str) -> float:
    """Bytes on the wire of a client by the rule's own estimate."""
    carrier = CARRIERS[over]
    alone = run.graph.after if isinstance(run.graph, coterie.GraphRule) else 0
    pace = pace_of(method, run.rounds, alone)
    count = run.rounds if pace is None else len(pace.rounds)
    share = through.share if isinstance(through, Delta) else 1.0
    bits = {"int4": 4, "int8": 8, "full": 32}[through.values]
    each = carrier.envelope + carrier.framing * payload(run.parameters, share, bits)
    return (count - alone) * run.takes_part * run.messages(method) * each


@given(
    st.integers(10, 10**6),
    st.integers(3, 300),
    st.floats(3.0, 8.0),
    st.sampled_from(sorted(CARRIERS)),
)
def test_the_budget_is_kept_or_refused(
    parameters: int, rounds: int, size: float, over: str
) -> None:
    run = Run(parameters, rounds, 1.0, 20, GRAPH)
    asked = get_channel("delta", {"budget": f"{10**size:.0f}", "over": over})
    least = 10**size < 2000 or over == "flower"
    try:
        method, through = settle(coterie.FedU(), asked, run)
    except InvalidInput:
        assert least or over == "zenoh" or parameters > 10**4, "a small model needs little"
        return
    assert spent(method, through, run, over) <= 10**size
    assert method.implicit
    richer = get_channel("delta", {"budget": f"{10 ** (size + 1):.0f}", "over": over})
    more, fuller = settle(coterie.FedU(), richer, run)
    assert more.exchange_every <= method.exchange_every or getattr(fuller, "share", 1) > getattr(
        through, "share", 1
    )


def test_what_is_billed_is_within_the_budget() -> None:
    fed = coterie.load("digits", clients=6)
    options = {"rounds": 20, "eval_every": 20, "batch_size": 10}
    for size in ("2kB", "6kB", "40kB"):
        through = get_channel("delta", {"budget": size, "over": "payload"})
        made = coterie.simulate(
            coterie.FedU(local_steps=2), fed, "mlr", graph=GRAPH, channel=through, **options
        )
        bill = made.ledger.totals()
        each = (bill["up"] + bill["down"]) / 6
        assert 0.4 * float(size[:-2]) * 1000 < each <= 1.05 * float(size[:-2]) * 1000
    assert made.simulator.method.exchange_every == 1
    assert made.simulator.channel.values == "int8", "every round, whole, in more bits"


def test_what_cannot_be() -> None:
    run = Run(7850, 100, 1.0, 20, None)
    with pytest.raises(InvalidInput, match="a single exchange needs 946 bytes over zenoh"):
        settle(coterie.FedU(), get_channel("delta", {"budget": "500"}), run)
    with pytest.raises(InvalidInput, match=r"exchange_every is 3 and the channel has a budget"):
        settle(coterie.FedU(exchange_every=3), get_channel("delta", {"budget": "1MB"}), run)
    with pytest.raises(InvalidInput, match="which chooses it, so it would be ignored"):
        get_channel("delta", {"budget": "1MB", "share": 0.1})
    with pytest.raises(InvalidInput, match="the number of bytes is 'much'"):
        get_channel("delta", {"budget": "much"})
