"""Do no harm: a guarded client uses as much of its neighbours' help as its validation rows say."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput
from coterie.data.federation import pack
from coterie.engine.adapt import adapt
from coterie.engine.personal import adapts_on_data
from coterie.methods.guard import SHARES
from coterie.methods.local import equal_compute

OPTIONS: dict[str, Any] = {"rounds": 12, "eval_every": 12, "batch_size": 10, "precision": "float64"}


def opposed(validation: int = 40, wrong: float = 0.0) -> Federation:
    """Three clients with one rule, and one whose rule is turned round; some labels are wrong."""
    rng = np.random.default_rng(0)

    def rows(count: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(count, 2)).astype(np.float32)
        return x, ((x[:, 0] > 0) ^ (k == 3) ^ (rng.random(count) < wrong)).astype(np.int64)

    parts = [pack([rows(n, k) for k in range(4)]) for n in (30, validation, 200)]
    return Federation("opposed", *parts, classes=2)


def method(eta: float = 5.0, **more: Any) -> coterie.Method:
    return coterie.FedU(eta=eta, lr=0.3, local_steps=5, implicit=True, **more)


def test_who_would_be_hurt_trains_alone() -> None:
    fed = opposed()
    scores = lambda m: coterie.simulate(m, fed, "mlr", **OPTIONS).client_scores()
    alone = scores(coterie.Local(lr=0.3, local_steps=5))
    hurt, guarded = scores(method()), scores(method(guard=True))
    assert hurt[3] < 0.5 < alone[3], "without a guard the unlike client is lost"
    assert (guarded >= alone - 0.02).all()


def test_the_share_is_the_best_of_those_tried_on_validation_rows() -> None:
    fed = opposed(wrong=0.25)
    tied = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]])
    result = coterie.simulate(
        method(eta=0.5, guard=True), fed, "mlr", graph=coterie.graph.from_matrix(tied), **OPTIONS
    )
    sim = result.simulator
    states = sim.store.gather(np.arange(4)).method_state
    flat = lambda v, k: {name: np.asarray(leaf)[k] for name, leaf in v.tree.items()}
    chosen = []
    for k in range(4):
        coupled, alone = flat(states.x, k), flat(states.alone, k)
        x, y = fed.validation.client(k)
        losses = []
        for share in SHARES:
            w, b = (alone[n] + share * (coupled[n] - alone[n]) for n in ("w", "b"))
            z = x @ w.T + b
            losses.append(np.log(np.exp(z).sum(1)).sum() - z[np.arange(len(y)), y].sum())
        best = SHARES[len(SHARES) - 1 - int(np.argmin(losses[::-1]))]
        chosen.append(best)
        mine = result.personal(k).tree
        expected = alone["w"] + best * (coupled["w"] - alone["w"])
        np.testing.assert_allclose(mine["w"], expected, rtol=1e-12)
    assert len(set(chosen)) > 1, "else nothing was chosen"


def test_the_model_trained_alone_is_local_s() -> None:
    fed = opposed()
    sim = coterie.simulate(method(guard=True), fed, "mlr", **OPTIONS).simulator
    alone = sim.store.gather(np.arange(4)).method_state.alone
    local = coterie.simulate(coterie.Local(lr=0.3, local_steps=5), fed, "mlr", **OPTIONS)
    np.testing.assert_allclose(
        jnp.asarray(alone.tree["w"]), local.simulator.all_models().tree["w"], rtol=1e-12
    )


def test_what_it_costs() -> None:
    fed = opposed()
    bill = lambda m: coterie.simulate(m, fed, "mlr", **OPTIONS).ledger.totals()
    plain, guarded = bill(method()), bill(method(guard=True))
    assert guarded["gradients"] == 2 * plain["gradients"]
    assert (guarded["up"], guarded["down"]) == (plain["up"], plain["down"])
    assert equal_compute(method(guard=True)).local_steps == 10


def test_models_come_from_data_and_newcomers_have_a_guard_too() -> None:
    fed = opposed()
    sim = coterie.simulate(method(guard=True), fed, "mlr", **OPTIONS).simulator
    assert adapts_on_data(sim)
    assert not adapts_on_data(coterie.simulate(method(), fed, "mlr", **OPTIONS).simulator)
    unlike = fed.subset(np.array([3]))
    free, guarded = (
        adapt(coterie.simulate(m, fed, "mlr", **OPTIONS).simulator, unlike, rounds=5).scores
        for m in (method(), method(guard=True))
    )
    assert guarded.score[0, 0] >= free.score[0, 0]


def test_without_validation_rows_it_is_refused() -> None:
    fed = opposed(validation=0)
    with pytest.raises(InvalidInput, match="looks at clients' own validation rows"):
        coterie.simulate(method(guard=True), fed, "mlr", **OPTIONS)
