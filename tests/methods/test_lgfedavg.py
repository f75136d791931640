"""LG-FedAvg against a plain numpy round, and in the cases where it is another method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.randomness import Role, cohort, role_key
from tests.support.softmax_runs import EXACT, flat, softmax_gradient, start


@pytest.mark.parametrize("shared", ["b", "w"])
def test_two_of_five_clients_a_round_as_in_numpy(shared: str, ragged: Federation) -> None:
    """Both parts step together; the shared one is averaged by samples, the other stays with the
    clients that were sampled.
    """
    lr, steps = 0.3, 3
    method = coterie.LGFedAvg(lr=lr, local_steps=steps, shared=shared)
    result = coterie.simulate(method, ragged, "mlr", cohort=2, **EXACT)
    first = start(method, ragged, "mlr")
    w, b = np.repeat(first["w"][None], 5, 0), np.repeat(first["b"][None], 5, 0)
    for t in range(3):
        members = np.asarray(cohort(role_key(0, Role.COHORT), t, 5, 2))
        for k in members:
            for _ in range(steps):
                gw, gb = softmax_gradient(w[k], b[k], *ragged.train.client(int(k)))
                w[k], b[k] = w[k] - lr * gw, b[k] - lr * gb
        share = ragged.train.sizes[members] / ragged.train.sizes[members].sum()
        part = w if shared == "w" else b
        part[:] = np.tensordot(share, part[members], 1)
    models = result.simulator.all_models().tree
    np.testing.assert_allclose(models["w"], w, rtol=1e-10)
    np.testing.assert_allclose(models["b"], b, rtol=1e-10)


def test_the_default_of_one_dense_layer_shares_its_intercept(ragged: Federation) -> None:
    default = flat(coterie.LGFedAvg(local_steps=2), ragged, "mlr")
    np.testing.assert_array_equal(
        default, flat(coterie.LGFedAvg(local_steps=2, shared="b"), ragged, "mlr")
    )


def test_sharing_everything_is_fedavg(ragged: Federation) -> None:
    steps: dict[str, Any] = {"lr": 0.2, "local_steps": 3, "beta": 0.8}
    options = {"cohort": 3, "sampling": "shuffle", "batch_size": 4}
    everything = flat(coterie.LGFedAvg(**steps, shared="layer0,layer1"), ragged, **options)
    np.testing.assert_allclose(
        everything, flat(coterie.FedAvg(**steps), ragged, **options), rtol=1e-12
    )
    assert not np.allclose(
        everything, flat(coterie.LGFedAvg(**steps), ragged, **options), rtol=1e-3
    )


def test_robust_merges_work_on_the_shared_part(ragged: Federation) -> None:
    median = flat(
        coterie.LGFedAvg(lr=0.2, local_steps=2, merging="median", shared="layer0,layer1"), ragged
    )
    np.testing.assert_allclose(
        median, flat(coterie.FedAvg(lr=0.2, local_steps=2, merging="median"), ragged), rtol=1e-12
    )
