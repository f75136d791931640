"""Global: what one step looks at, and what it is billed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.data.federation import pack
from tests.support.star_runs import flat

OPTIONS: dict[str, Any] = {"rounds": 2, "eval_every": 2, "batch_size": 4, "precision": "float64"}


def in_one_place(federation: Federation) -> Federation:
    """A single client that has everybody's data."""
    whole = lambda split: pack([(split.x, split.y)])
    return dataclasses.replace(
        federation,
        train=whole(federation.train),
        validation=whole(federation.validation),
        test=whole(federation.test),
    )


@pytest.mark.parametrize("loop", [{"local_steps": 3}, {"local_epochs": 1}], ids=str)
def test_with_a_single_batch_it_is_local_training_on_the_pooled_data(
    loop: dict[str, int], ragged: Federation
) -> None:
    """The papers' Global: batches of B from everybody's samples, whatever the cohort."""
    pooled = coterie.simulate(
        coterie.Global(lr=0.1, batch="single", **loop), ragged, cohort=3, **OPTIONS
    )
    alone = coterie.simulate(coterie.Local(lr=0.1, **loop), in_one_place(ragged), **OPTIONS)
    np.testing.assert_allclose(
        flat(pooled.personal(0)), flat(alone.personal(0)), rtol=1e-9, atol=1e-12
    )
    steps = 3 if "local_steps" in loop else -(-len(ragged.train) // 4)
    assert pooled.ledger.totals()["gradients"] == alone.ledger.totals()["gradients"] == 2 * steps


def test_with_a_batch_per_member_a_step_looks_at_as_many_samples_as_a_cohort(
    ragged: Federation,
) -> None:
    run = lambda batch, size, cohort: coterie.simulate(
        coterie.Global(lr=0.1, local_steps=3, batch=batch),
        ragged,
        **{**OPTIONS, "batch_size": size, "cohort": cohort},
    )
    three = run("cohort", 4, 3)
    np.testing.assert_array_equal(
        flat(three.personal(0)),
        flat(run("single", 12, 3).personal(0)),
        "3 batches of 4 are one of 12",
    )
    assert three.ledger.totals()["gradients"] == 2 * 3 * 3
    assert coterie.Global().batch == "cohort"
