"""A client of a real federation whose model is a PyTorch module, named in the plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation, from_arrays
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem
from coterie.deploy.site import OwnData, save_own
from coterie.deploy.worker import Worker
from coterie.engine.simulate import Simulator

pytest.importorskip("torch")

NETS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def make():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

def loader():
    torch.manual_seed(1)
    rows = TensorDataset(torch.randn(12, 5), torch.arange(12) % 3)
    return DataLoader(rows, batch_size=4, shuffle=True)
"""


@pytest.fixture
def fed() -> Federation:
    rng = np.random.default_rng(0)
    return from_arrays(
        "noise",
        rng.normal(size=(60, 5)).astype(np.float32),
        rng.integers(0, 3, 60),
        np.arange(60) % 2,
        classes=3,
    )


@pytest.fixture
def plan(fed: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    (tmp_path / "some_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    config = {
        "name": "torch",
        "clients": ["a", "b"],
        "problem": Problem.of(fed).to_config(),
        "model": {"name": "torch", "module": "some_nets:make"},
        "training": {"rounds": 2, "batch_size": 6, "eval_every": 2},
        "method": {"name": "fedu", "local_steps": 2},
    }
    return Plan.from_config(config)


def run(plan: Plan, clients: list[Client], folder: Path) -> None:
    hub = Hub(plan, folder / "hub", say=lambda sentence: None)
    while not hub.done:
        for k, request in hub.requests().items():
            hub.take(k, clients[k].answer(request))
        hub.close()
    for k, request in hub.farewells().items():
        hub.take(k, clients[k].answer(request))


def test_a_module_named_in_the_plan_trains_as_in_the_simulator(
    plan: Plan, fed: Federation, tmp_path: Path
) -> None:
    clients = [Client(plan, k, fed.subset(np.array([k])), tmp_path / f"{k}") for k in range(2)]
    run(plan, clients, tmp_path)
    simulator = Simulator(plan.method, fed, plan.model, plan.training, plan.coupling)
    simulator.advance(1)
    simulator.advance(1)
    for k in range(2):
        np.testing.assert_allclose(
            clients[k].models()["personal"].flat(),
            simulator.models(k)["personal"].flat(),
            rtol=1e-5,
            atol=1e-6,
        )


def test_a_client_with_a_loader_of_its_own(plan: Plan, fed: Federation, tmp_path: Path) -> None:
    save_own(fed, 0, tmp_path / "own.npz")
    own = OwnData(path="own.npz", loader="some_nets:loader")
    worker = Worker(plan, 0, own.load(plan, tmp_path), own.own_loader())
    assert worker.samples == 12
    other = fed.subset(np.array([1]))
    first = Client(plan, 0, worker, tmp_path / "first")
    run(plan, [first, Client(plan, 1, other, tmp_path / "first-other")], tmp_path / "one")
    again = Client(
        plan, 0, Worker(plan, 0, own.load(plan, tmp_path), own.own_loader()), tmp_path / "again"
    )
    run(plan, [again, Client(plan, 1, other, tmp_path / "again-other")], tmp_path / "two")
    assert (
        first.models()["personal"].flat().tobytes() == again.models()["personal"].flat().tobytes()
    )


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("some_nets", "of the form package.module:name"),
        ("no_such_nets:make", "cannot be imported here"),
        ("some_nets:loader", "must be a torch.nn.Module"),
    ],
)
def test_a_module_that_is_none_is_refused(plan: Plan, module: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        plan.with_(model=plan.model.replace(module=module)).built()
