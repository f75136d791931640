"""Server optimisers: rounds repeated in NumPy, by the equations of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import InvalidInput
from coterie.core.options import traced_dataclass
from tests.support.quadratics import EXACT, facts, linear
from tests.support.room import Room, assert_same, make_plan
from tests.support.star_runs import flat, trained

LR, STEPS, ROUNDS, RATE = 0.1, 2, 4, 0.3


def rounds_by_hand(name: str, w: NDArray[Any], **options: float) -> NDArray[Any]:
    """ROUNDS rounds of all clients with exact gradients, and the hub's rule in NumPy."""
    fed = linear()
    b, best = facts(fed)
    b1, b2, tau = options.get("b1", 0.9), options.get("b2", 0.99), options.get("tau", 1e-3)
    m, v = np.zeros_like(w), np.full_like(w, tau**2)
    for _ in range(ROUNDS):
        x = np.tile(w, (len(best), 1))
        for _ in range(STEPS):
            x = x - LR * b * (x - best)
        delta = x.mean(0) - w
        if name == "fedavgm":
            m = options.get("momentum", 0.9) * m + delta
            w = w + RATE * m
            continue
        m = b1 * m + (1 - b1) * delta
        if name == "fedadam":
            v = b2 * v + (1 - b2) * delta**2
        elif name == "fedyogi":
            v = v - (1 - b2) * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        w = w + RATE * m / (np.sqrt(v) + tau)
    return w


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedadam", {}),
        ("fedyogi", {"b1": 0.5, "b2": 0.9, "tau": 0.1}),
        ("fedadagrad", {"b1": 0.0}),
        ("fedavgm", {"momentum": 0.6}),
    ],
)
def test_the_hub_follows_the_papers_equations(name: str, options: dict[str, float]) -> None:
    method = coterie.FedAvg(
        lr=LR,
        local_steps=STEPS,
        weighting="uniform",
        server_lr=RATE,
        server_optimizer={"name": name, **options},
    )
    run = trained(method, linear(), "linear", rounds=ROUNDS, **EXACT)
    expected = rounds_by_hand(name, flat(run.template), **options)
    np.testing.assert_allclose(flat(run.hub.model), expected, rtol=1e-9)


def test_plain_steps_at_the_hub_are_beta() -> None:
    """w − β(w − mean), by "sgd" with server_lr = β; in methods with other hubs too."""
    fed = linear()
    for cls in (coterie.Scaffold, coterie.AFL):
        common = {"lr": LR, "local_steps": STEPS}
        by_beta = trained(cls(beta=0.7, **common), fed, "linear", rounds=3, **EXACT)
        by_rule = trained(
            cls(server_optimizer="sgd", server_lr=0.7, **common), fed, "linear", rounds=3, **EXACT
        )
        np.testing.assert_allclose(
            flat(by_rule.hub.model.model), flat(by_beta.hub.model), rtol=1e-10
        )


def test_a_hub_that_was_not_written_for_it_refuses() -> None:
    @traced_dataclass
    class Bare(coterie.FedAvg):
        def hub_init(self, template: Any) -> Any:
            return template

    fed = linear()
    method = Bare(server_optimizer="fedadam", local_steps=1)
    with pytest.raises(InvalidInput, match="must call `steered`"):
        trained(method, fed, "linear", rounds=1, **EXACT)


def test_deployed_hub_and_clients_carry_the_states_of_their_optimisers(tmp_path: Path) -> None:
    """Everybody restarted from its folder after every round; the models are the simulator's."""
    fed = coterie.load("digits", clients=4)

    def restart(room: Room) -> None:
        room.hub = room.new_hub()
        room.clients = [room.new_client(k) for k in range(4)]

    options = {"optimizer": "adam", "optimizer_state": "kept", "server_optimizer": "fedyogi"}
    plan = make_plan(fed, "fedavg", options={"lr": 0.01, **options})
    assert_same(Room(plan, fed, tmp_path).run(restart), fed)
