"""Which round counts: the best on validation data is what is evaluated, exported and reported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import FedU, InvalidInput, Local
from coterie.runs import run as runs
from coterie.runs.experiment import Experiment
from coterie.runs.export import export
from tests.engine.test_run import (
    killed_and_resumed_ends_the_same,
    models,
    same_bits,
    tables,
)

quiet = lambda sentence: None
NOISY: dict[str, Any] = {"rounds": 12, "eval_every": 2, "batch_size": 2, "cohort": 3}
METHOD = {"name": "fedu", "local_steps": 2, "lr": 2.0}


def federation(**more: Any) -> coterie.Federation:
    return coterie.load("digits", clients=6, validation=0.3, **more)


def noisy(**training: Any) -> Experiment:
    """Large steps on tiny batches: validation scores go up and down."""
    return Experiment.from_config(
        {
            "data": {"name": "digits", "clients": 6, "validation": 0.3},
            "training": {**NOISY, "keep": "best", **training},
            "method": METHOD,
        }
    )


@pytest.mark.parametrize("store", ["device", "file", pytest.param("host", marks=pytest.mark.slow)])
def test_the_best_validation_round_counts(store: str) -> None:
    method, fed = FedU(local_steps=2, lr=2.0), federation()
    result = coterie.simulate(method, fed, keep="best", store=store, **NOISY)
    curve = result.curve("validation")
    assert result.kept == result.rounds[int(np.argmax(curve))]
    assert 0 < result.kept < 12  # else this shows nothing
    assert result.rounds == [0, 2, 4, 6, 8, 10, 12]
    stopped = coterie.simulate(method, fed, **{**NOISY, "rounds": result.kept})
    np.testing.assert_array_equal(result.client_scores(), stopped.client_scores())
    # Clients that trained for the first time after the best round are as they were.
    for k in range(fed.clients):
        np.testing.assert_array_equal(result.personal(k).flat(), stopped.personal(k).flat())
    # What was spent stays spent.
    assert result.ledger.gradients == 12 * 3 * 2
    np.testing.assert_array_equal(
        result.simulator.evaluate().scores["test"].score, result.counted.scores["test"].score
    )


def test_of_equal_scores_the_lower_loss_is_better() -> None:
    from coterie.engine.keeper import Standing

    assert Standing(0.5, 1.0).beats(Standing(0.5, 2.0))
    assert not Standing(0.5, 2.0).beats(Standing(0.5, 2.0))
    assert not Standing(0.4, 1.0).beats(Standing(0.5, 2.0))


def test_patience_stops_and_bills_what_was_done() -> None:
    full = coterie.simulate(Local(local_steps=2, lr=2.0), federation(), keep="best", **NOISY)
    result = coterie.simulate(
        Local(local_steps=2, lr=2.0), federation(), keep="best", patience=1, **NOISY
    )
    curve = full.curve("validation")
    worse = next(i for i in range(1, len(curve)) if curve[i] < curve[:i].max())
    assert result.rounds == full.rounds[: worse + 1]
    assert result.ledger.gradients == result.rounds[-1] * 3 * 2
    assert result.kept == full.rounds[int(np.argmax(curve[: worse + 1]))]


def test_without_validation_data_it_is_refused() -> None:
    fed = coterie.load("digits", clients=4, validation=0.0)
    for options, says in (({"keep": "best"}, 'keep is "best"'), ({"patience": 3}, "patience is 3")):
        with pytest.raises(InvalidInput, match=f"training.{says}, but .* no validation data"):
            coterie.simulate("local", fed, **options)


@pytest.mark.slow
def test_newcomers_adapt_from_the_round_that_counts() -> None:
    options = {**NOISY, "held_out": 2, "adapt_rounds": 1, "cohort": 2}
    result = coterie.simulate(FedU(local_steps=2, lr=2.0), federation(), keep="best", **options)
    assert result.kept is not None
    assert 0 < result.kept < 12
    stopped = coterie.simulate(
        FedU(local_steps=2, lr=2.0), federation(), **{**options, "rounds": result.kept}
    )
    np.testing.assert_array_equal(
        result.client_scores("newcomers"), stopped.client_scores("newcomers")
    )


def test_a_folder_exports_and_reports_the_best_round(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.start(noisy(), folder, say=quiet)
    status = json.loads((folder / "status.json").read_text())
    assert status.pop("metric")["title"] == "accuracy"
    validated = {
        r["round"]: r["score"] for r in tables(folder)["rounds"] if r["split"] == "validation"
    }
    kept = max(validated, key=lambda r: validated[r])
    assert status == {"finished": True, "rounds": 12, "kept": kept}
    assert 0 < kept < 12
    assert {r["round"] for r in tables(folder)["rows"]} == {kept}
    stopped = tmp_path / "stopped"
    runs.start(noisy(rounds=kept, keep="last"), stopped, say=quiet)
    assert same_bits(models(folder, tmp_path / "a"), models(stopped, tmp_path / "b"))
    again = runs.resume(folder, say=quiet)  # nothing is left to do
    assert again.simulator.t == kept


def test_a_damaged_best_round_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.start(noisy(), folder, say=quiet)
    before = tables(folder)
    for path in (folder / "checkpoints").glob("*.best-rows.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidInput, match="none of its checkpoints is sound"):
        export(folder, None, tmp_path / "a", say=quiet)
    runs.resume(folder, say=quiet)
    assert tables(folder) == before


@pytest.mark.parametrize("store", ["device", "file"])
def test_interrupted_the_best_round_is_the_same(store: str, tmp_path: Path) -> None:
    chosen = noisy(checkpoint_every=2, patience=4, store=store)
    runs.start(chosen, tmp_path / "whole", say=quiet)

    def dying(simulator: Any, snapshot: Any) -> None:
        if simulator.t >= 9 and snapshot is None:  # between two checkpoints
            raise SystemExit("killed")

    with pytest.raises(SystemExit):
        runs.start(chosen, tmp_path / "cut", progress=dying, say=quiet)
    runs.resume(tmp_path / "cut", say=quiet)
    status = [(tmp_path / name / "status.json").read_text() for name in ("cut", "whole")]
    assert status[0] == status[1]
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    found = [models(tmp_path / name, tmp_path / f"of-{name}") for name in ("cut", "whole")]
    assert same_bits(*found)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["device", "file"])
def test_killed_at_random_moments_the_best_round_is_the_same(store: str, tmp_path: Path) -> None:
    chosen = noisy(rounds=300, eval_every=10, checkpoint_every=10, patience=28, store=store)
    killed_and_resumed_ends_the_same(chosen, tmp_path, random.Random(store), attempts=2)
    kept = [json.loads((tmp_path / n / "status.json").read_text()) for n in ("cut", "whole")]
    assert kept[0] == kept[1]
