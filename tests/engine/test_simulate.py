"""Driving a run from Python, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, Training
from coterie.engine.reference import Reference
from coterie.engine.simulate import Simulator
from coterie.engine.store import FileStore

RUN: dict[str, Any] = {"rounds": 4, "eval_every": 4, "batch_size": 4, "precision": "float64"}


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(4, 1, [0, 1, 2, 3, 4]), (4, 3, [0, 3, 4]), (4, 10, [0, 4]), (4, 4, [0, 4])],
)
def test_evaluations_fall_on_multiples_and_on_the_last_round(
    rounds: int, every: int, expected: list[int], ragged: Federation
) -> None:
    result = coterie.simulate(
        coterie.Local(local_steps=1), ragged, **{**RUN, "rounds": rounds, "eval_every": every}
    )
    assert result.rounds == expected
    assert len(result.curve()) == len(expected)


def test_progress_is_told_of_every_block_and_evaluation(ragged: Federation) -> None:
    seen: list[tuple[int, bool]] = []
    coterie.simulate(
        coterie.Local(local_steps=1),
        ragged,
        **{**RUN, "eval_every": 2},
        progress=lambda s, snapshot: seen.append((s.t, snapshot is not None)),
    )
    assert [t for t, evaluated in seen if evaluated] == [0, 2, 4]
    assert {t for t, evaluated in seen if not evaluated} >= {2, 4}


def test_models_of_a_client(ragged: Federation) -> None:
    result = coterie.simulate(
        coterie.PFedMe(local_rounds=1, inner_steps=1, keep_local=True), ragged, **RUN
    )
    views = result.simulator.models(3)
    assert list(views) == ["personal", "global", "local"]
    for view, model in views.items():
        stacked = result.simulator.all_models(view)
        for leaf, all_ in zip(model.leaves, stacked.leaves, strict=True):
            assert isinstance(leaf, np.ndarray)
            np.testing.assert_array_equal(leaf, all_[3])
    for bad in (-1, 5):
        with pytest.raises(InvalidInput, match=f"client is {bad}, but must be from 0 to 4"):
            result.simulator.models(bad)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_is_that_asked_for_everywhere(precision: str, ragged: Federation) -> None:
    result = coterie.simulate(
        coterie.FedAvg(local_steps=1), ragged, **{**RUN, "precision": precision}
    )
    assert {str(leaf.dtype) for leaf in result.personal(0).leaves} == {precision}
    assert str(result.simulator.setting.data.x.dtype) == precision


def test_all_methods_start_from_one_model_at_one_seed(ragged: Federation) -> None:
    starts = [
        np.asarray(Simulator(name, ragged, "mlr", Training(**RUN, seed=9)).template.flat())
        for name in ("local", "fedu", "pfedme", "fedavg")
    ]
    assert all((s == starts[0]).all() for s in starts)
    assert not (
        np.asarray(Simulator("local", ragged, "mlr", Training(**RUN, seed=8)).template.flat())
        == starts[0]
    ).any()


def test_unknown_names_are_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'fedavg'"):
        coterie.simulate("fedavgg", ragged, rounds=1)
    with pytest.raises(InvalidInput, match="did you mean 'mlr'"):
        coterie.simulate("local", ragged, "mlrr", rounds=1)
    with pytest.raises(InvalidInput, match="did you mean 'rounds'"):
        coterie.simulate("local", ragged, round=1)


def test_simulate_many_refuses_what_it_cannot_map(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="2 methods and 3 seeds"):
        coterie.simulate_many([coterie.Local(), coterie.Local()], ragged, seeds=[0, 1, 2], **RUN)
    with pytest.raises(InvalidInput, match="0 methods"):
        coterie.simulate_many([], ragged, **RUN)
    for other in (coterie.Local(local_steps=2), coterie.FedAvg(local_steps=1)):
        with pytest.raises(InvalidInput, match="differ in floats only"):
            coterie.simulate_many([coterie.Local(local_steps=1), other], ragged, **RUN)


def test_without_a_folder_the_file_is_a_temporary_one(ragged: Federation) -> None:
    result = coterie.simulate(coterie.Local(local_steps=1), ragged, rounds=1, store="file")
    store = result.simulator.store
    assert isinstance(store, FileStore)
    assert store.path is None
    assert store.file.file.seekable()
    assert store.used == ragged.clients


def test_conditions_are_reported_before_the_run(ragged: Federation) -> None:
    graph = coterie.graph.complete(5)
    calm = Simulator(
        coterie.FedU(lr=0.1, local_steps=2, eta=0.5), ragged, "mlr", Training(**RUN), graph
    )
    (condition,) = calm.conditions()
    assert condition.value == pytest.approx(0.1 * 2 * 0.5 * 5)
    assert condition.holds
    wild = Simulator(
        coterie.GraphProj(lr=0.1, local_steps=2, eta=5.0, dsub=4),
        ragged,
        "mlr",
        Training(**RUN),
        graph,
    )
    matrix = np.concatenate([np.asarray(p) for p in wild.method.drawn.parts], axis=1)  # type: ignore[attr-defined]
    (condition,) = wild.conditions()
    assert condition.value == pytest.approx(
        0.1 * 2 * 5.0 * 5 * np.linalg.norm(matrix, 2) ** 2, rel=1e-3
    )
    assert not condition.holds


@pytest.mark.parametrize("kind", ["dense", "block", "layer"])
@pytest.mark.parametrize("dsub", [2, 3, 8])
def test_the_norm_of_p_in_the_conditions_is_the_norm_of_p(
    kind: str, dsub: int, ragged: Federation
) -> None:
    """Too small a norm would call an unstable step stable.

    With two rows of negative correlation (1, 1) is orthogonal to what is sought.
    """
    for seed in range(6):
        method = coterie.LpProj2(
            dsub=dsub,
            projection=kind,
            blocks=min(dsub, 2) if kind == "block" else 1,
            projection_seed=seed,
        )
        simulator = Simulator(method, ragged, "mlr", Training(**RUN))
        with simulator.precision():
            columns = [simulator.method.drawn(simulator.template.like(row)) for row in np.eye(15)]  # type: ignore[attr-defined]
            got = simulator.method.squared_norm_of_p(simulator.template)  # type: ignore[attr-defined]
        assert got == pytest.approx(np.linalg.norm(np.stack(columns, axis=1), 2) ** 2, rel=0.02), (
            f"projection seed {seed}"
        )


def test_the_slow_back_end_does_one_round_at_a_time(ragged: Federation) -> None:
    slow = Reference(coterie.FedU(local_steps=1), ragged, "mlr", Training(**RUN))
    assert slow.advance(3) == 1
    assert slow.t == 1
    with pytest.raises(coterie.InvalidInput, match="held_out is 2, but must be 0"):
        Reference("fedu", ragged, "mlr", Training(**RUN, held_out=2))


def test_a_fixed_projection_seed_holds_p_still_while_the_runs_seed_changes(
    ragged: Federation,
) -> None:
    drawn = lambda seed, fixed: Simulator(
        coterie.LpProj2(dsub=4, projection_seed=fixed), ragged, "mlr", Training(**RUN, seed=seed)
    ).method.drawn.parts[0]
    np.testing.assert_array_equal(drawn(0, 3), drawn(1, 3))
    assert not np.array_equal(drawn(0, None), drawn(1, None))
    assert not np.array_equal(drawn(0, 3), drawn(0, 4))


def test_local_at_equal_compute_takes_as_many_gradients(ragged: Federation) -> None:
    for method in (
        coterie.PFedMe(local_rounds=2, inner_steps=3),
        coterie.FedU(local_epochs=1),
        coterie.LpProj2(local_rounds=2, inner_steps=3, dsub=4, trains="sampled"),
    ):
        options = {**RUN, "cohort": 2}
        theirs = coterie.simulate(method, ragged, **options).ledger
        ours = coterie.simulate(coterie.equal_compute(method), ragged, **options).ledger
        np.testing.assert_array_equal(ours.rows()[:, [0, 1, 4]], theirs.rows()[:, [0, 1, 4]])
        assert ours.totals()["up"] == ours.totals()["down"] == 0
