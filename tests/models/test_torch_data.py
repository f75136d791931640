"""PyTorch data sets and loaders."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie.engine.simulate import Simulator
from tests.support.torch_nets import Net, local

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402


def pairs(x: np.ndarray, y: np.ndarray) -> TensorDataset:
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def test_datasets_and_loaders_become_a_federation(ragged: coterie.Federation) -> None:
    given = []
    for k in range(ragged.clients):
        train, validation, test = (pairs(*split.client(k)) for split in ragged.splits)
        given.append(
            (
                DataLoader(train, batch_size=4),
                validation if len(validation) else None,
                test if len(test) else None,
            )
        )
    fed = coterie.from_datasets(given)
    for mine, theirs in zip(fed.splits, ragged.splits, strict=True):
        np.testing.assert_array_equal(mine.x, theirs.x.astype(np.float32))
        np.testing.assert_array_equal(mine.y, theirs.y)
        np.testing.assert_array_equal(mine.offsets, theirs.offsets)
    assert (fed.task, fed.classes) == ("classification", 3)


def test_targets_tell_the_task_and_bad_data_is_refused() -> None:
    x = np.zeros((3, 2))
    assert coterie.from_datasets([pairs(x, np.zeros(3))]).task == "regression"
    assert (
        coterie.from_datasets([pairs(x, np.arange(3))], task="regression").train.y.dtype
        == np.float32
    )
    for word, given in {
        "drop_last": [DataLoader(pairs(x, np.arange(3)), drop_last=True)],
        "must be a torch.utils.data": [np.zeros(3)],
        "has 4 data sets": [(None,) * 4],
        "does not give pairs": [TensorDataset(torch.zeros(3, 2))],
        "must be alike": [pairs(x, np.arange(3)), pairs(np.zeros((3, 5)), np.arange(3))],
        "at least 1 client": [],
        "no training samples": [pairs(x, np.arange(3)), (None, pairs(x, np.arange(3)))],
    }.items():
        with pytest.raises(coterie.InvalidInput, match=word) as error:
            coterie.from_datasets(given)
        assert "\n" not in str(error.value)


class Noisy(Dataset):
    """Augments with every generator there is."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        import random

        drawn = np.random.rand()  # noqa: NPY002
        return (
            torch.tensor([i, random.random(), drawn, float(torch.rand(()))]),
            i % 3,
        )


def test_a_loader_that_augments_gives_the_same_batches_for_the_same_round_and_only_then() -> None:
    model = coterie.torch_model(Net())
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    loader = DataLoader(Noisy(10), batch_size=4, shuffle=True)
    client = coterie.LoaderClient(model, loader, seed=7, client=2)
    objective = client.objective(3)
    assert int(objective.steps_per_epoch) == 3
    batches = [objective.batch(i) for i in range(6)]
    assert [int(b.weight.sum()) for b in batches] == [4, 4, 2, 4, 4, 2]
    for epoch in (batches[:3], batches[3:]):
        seen = np.concatenate([np.asarray(b.x)[np.asarray(b.weight) > 0, 0] for b in epoch])
        assert sorted(seen.tolist()) == list(range(10))
    back = objective.batch(1)  # out of order
    np.testing.assert_array_equal(back.x, batches[1].x)
    assert not np.array_equal(batches[0].x, batches[3].x)
    assert not np.array_equal(client.objective(4).batch(0).x, batches[0].x)
    other = coterie.LoaderClient(
        model, DataLoader(Noisy(10), batch_size=4, shuffle=True), seed=7, client=2
    )
    np.testing.assert_array_equal(other.objective(3).batch(4).x, batches[4].x)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    w = model.vector(jax.random.key(0))
    first, second = (
        local(coterie.FedAvg(local_epochs=2), w, c.objective(5)) for c in (client, other)
    )
    np.testing.assert_array_equal(first, second)


def test_a_loader_that_gives_everything_trains_as_the_simulator_does(
    ragged: coterie.Federation,
) -> None:
    model, method = coterie.torch_model(Net()), coterie.FedAvg(local_steps=4)
    sim = Simulator(method, ragged, model, coterie.Training(sampling="full"))
    expected = local(method, sim.template, sim.now().objective(1))
    data = pairs(*ragged.train.client(1))
    client = coterie.LoaderClient(
        model, DataLoader(data, batch_size=len(data), shuffle=True), client=1
    )
    np.testing.assert_allclose(
        local(method, sim.template, client.objective(0)), expected, rtol=1e-5, atol=1e-6
    )


def test_loaders_that_cannot_be_followed_are_refused() -> None:
    model = coterie.torch_model(Net())

    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            while True:
                yield torch.zeros(4), 0

    for word, loader in {
        "must be a torch.utils.data.DataLoader": [1, 2],
        "num_workers=2": DataLoader(Noisy(4), num_workers=2),
        "has no length": DataLoader(Endless()),
        "0 batches": DataLoader(Noisy(2), batch_size=4, drop_last=True),
        "no pairs": DataLoader(TensorDataset(torch.zeros(3, 4))),
    }.items():
        with pytest.raises(coterie.InvalidInput, match=word):
            coterie.LoaderClient(model, loader)  # type: ignore[arg-type]
