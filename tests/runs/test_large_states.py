"""States that are large: no more of them are in memory at once than fit, and nothing else
changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie.engine import mesh, store
from coterie.engine.row_scores import row_scores
from coterie.runs import checkpoint, run
from tests.test_grid import FEDU, experiment, quiet, written


def single(**training: Any) -> Any:
    chosen = experiment(FEDU, rounds=4, eval_every=2, cohort=3, store="file", **training)
    chosen = chosen.with_(seeds=())
    return chosen.single(chosen.contenders[0], 0)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many states were asked for or put back at once, outside of rounds; 2 fit."""
    rows = 4 * (64 * 10 + 10)  # of MLR on the digits
    monkeypatch.setattr(store, "ROOM", 2 * rows + 1)
    seen: list[int] = []
    for name in ("packed", "load"):
        real = getattr(store.FileStore, name)

        def counted(self: Any, ids: Any, *more: Any, real: Any = real) -> Any:
            seen.append(len(ids))
            return real(self, ids, *more)

        monkeypatch.setattr(store.FileStore, name, counted)
    return seen


def test_evaluations_have_as_many_states_at_hand_as_fit(most: list[int]) -> None:
    chosen = single()
    options = chosen.training.replace(store="file")
    sim = coterie.Simulator(chosen.method, chosen.federation(), "mlr", options)
    most.clear()
    sim.evaluate()
    assert most
    assert max(most) == 2
    most.clear()
    assert row_scores(sim) is not None
    assert max(most) == 2


def test_scores_and_checkpoints_are_those_of_plenty_of_room(
    most: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.start(single(), tmp_path / "few", say=quiet)
    files = [p.name for p in (tmp_path / "few" / "checkpoints").glob("*.rows-*")]
    assert files, "states are in several files"
    most.clear()
    few = run.load(tmp_path / "few", say=quiet)[1]
    assert max(most) == 2
    models = few.all_models().flat()
    monkeypatch.setattr(store, "ROOM", 1 << 28)
    run.start(single(), tmp_path / "many", say=quiet)
    assert not list((tmp_path / "many" / "checkpoints").glob("*.rows-*"))
    assert written(tmp_path / "few") == written(tmp_path / "many")
    many = run.load(tmp_path / "many", say=quiet)[1].all_models().flat()
    np.testing.assert_array_equal(models, many)


def test_parts_of_a_checkpoint_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.runs.best import save_arrays

    for i in range(3):
        part = {"ids": np.array([i]), "rows": np.zeros((1, 4), np.uint8)}
        save_arrays(tmp_path / f"{i}.safetensors", part)
    read: list[str] = []
    real = checkpoint.load_file
    monkeypatch.setattr(checkpoint, "load_file", lambda p: (read.append(p.name), real(p))[1])
    parts = checkpoint.RowFiles([tmp_path / f"{i}.safetensors" for i in range(3)])
    assert [ids.tolist() for ids in parts.ids()] == [[0], [1], [2]]
    assert not read
    for i, (ids, _) in enumerate(parts):
        assert ids.tolist() == [i]
        assert len(read) == i + 1


def test_devices_of_a_cpu_share_a_large_array() -> None:
    two = mesh.mesh_of(2)
    matrix = jax.numpy.ones(mesh.LARGE)
    shared, number = mesh.put_constants(two, (matrix, 0.5))
    places = {piece.data.unsafe_buffer_pointer() for piece in shared.addressable_shards}
    assert len(places) == 1
    assert number.weak_type
