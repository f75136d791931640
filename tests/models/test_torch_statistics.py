"""PyTorch modules with batch normalisation: running statistics of each client, or shared ones."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import coterie
from tests.support.torch_nets import RUN, Net

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch import nn  # noqa: E402


@pytest.mark.parametrize("backend", ["jax", "callback"])
def test_batch_normalisation_has_statistics_of_each_clients_own_data(
    ragged: coterie.Federation, backend: str
) -> None:
    """One of the clients has a last mini-batch of a single row."""
    net = Net(middle=nn.BatchNorm1d(5))
    model = coterie.torch_model(net, backend=backend)
    options = {"rounds": 2, "eval_every": 2, "batch_size": 3}
    result = coterie.simulate(coterie.FedAvg(local_epochs=1), ragged, model, **options)
    for k in (0, 3):
        module = model.module(result.personal(k))
        x, y = (torch.tensor(np.asarray(a)) for a in ragged.train.client(k))
        with torch.no_grad():
            z = torch.relu(module.hidden(x.float()))
        found = module.middle.running_mean
        np.testing.assert_allclose(found, z.mean(0), rtol=1e-4, atol=1e-5)
        if len(ragged.test.client(k)[1]):
            x, y = (torch.tensor(np.asarray(a)) for a in ragged.test.client(k))
            with torch.no_grad():
                right = (module(x.float()).argmax(1) == y).float().mean()
            score = result.snapshots[-1].scores["test"].score[0, k]
            assert float(score) == pytest.approx(float(right), abs=1e-6)
    assert torch.equal(net.middle.running_mean, torch.zeros(5)), "the user's module was changed"


@pytest.mark.parametrize("backend", ["jax", "callback"])
def test_shared_statistics_of_a_module_are_parameters(
    ragged: coterie.Federation, backend: str
) -> None:
    model = coterie.torch_model(
        Net(middle=nn.BatchNorm1d(5)), shared_statistics=True, backend=backend
    )
    result = coterie.simulate(coterie.FedAvg(local_steps=1), ragged, model, **RUN)
    one, two = (result.personal(k).tree.statistics for k in (0, 3))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    with pytest.raises(coterie.InvalidInput, match="has no running statistics"):
        coterie.torch_model(Net(), shared_statistics=True)
