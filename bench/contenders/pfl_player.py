"""pfl-research: its simulated backend and its federated averaging, with a PyTorch model."""

from __future__ import annotations

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel

from bench.problems import LR, Problem, data


class Network(torch.nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for a, b in zip(sizes, sizes[1:], strict=False):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers[:-1])

    def forward(self, x: Any) -> Any:
        return self.layers(x)

    def loss(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: Any, y: Any) -> dict[str, Any]:
        return {}


class Player:
    """What a worker drives (worker.py)."""

    def __init__(self, problem: Problem, kind: str = "") -> None:
        x, y = (torch.from_numpy(a) for a in data(problem))
        sets = [Dataset([x[k], y[k]], user_id=str(k)) for k in range(problem.clients)]
        turn = iter(range(10**12))
        users = FederatedDataset(sets.__getitem__, lambda: next(turn) % problem.clients)
        network = Network(problem.sizes)
        self.backend = SimulatedBackend(training_data=users, val_data=users)
        self.model = PyTorchModel(
            network,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
        )
        self.algorithm = FederatedAveraging()
        self.options = NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=problem.clients,
            val_cohort_size=0,
        )
        self.training = NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=problem.steps,
            local_learning_rate=LR,
            local_batch_size=problem.batch,
        )
        self.t = 1  # round 0 evaluates

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            contexts, self.model, _ = self.algorithm.get_next_central_contexts(
                self.model, self.t, self.options, self.training
            )
            (context,) = contexts
            found, metrics = self.backend.gather_results(
                model=self.model, training_algorithm=self.algorithm, central_context=context
            )
            self.model, _ = self.algorithm.process_aggregated_statistics(
                context, metrics, self.model, found
            )
            self.t += 1
