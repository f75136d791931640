"""A hub and its clients in one room, without a wire between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie import Federation
from coterie.channel import PLAIN, Channel
from coterie.core.vector import Vector
from coterie.deploy import messages
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.messages import Reply, Request
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.problem import Problem
from coterie.engine.simulate import Simulator
from coterie.engine.training import Training
from coterie.methods.base import get_method
from coterie.models.base import get_model
from coterie.models.memorised import Stored
from tests.support.bills import in_order

ROUNDS, CLIENTS = 3, 4


def make_plan(
    fed: Federation,
    method: str,
    channel: Channel = PLAIN,
    options: dict[str, Any] | None = None,
    **training: Any,
) -> Plan:
    training = {"rounds": ROUNDS, "eval_every": 2, "batch_size": 5, **training}
    rules = Rules(at_least=0.5)
    names = tuple(f"site-{k}" for k in range(CLIENTS))
    chosen = get_method(
        method,
        {
            **({"local_steps": 2} if "local_steps" in type(get_method(method)).public() else {}),
            **(options or {}),
        },
    )
    return Plan(
        "test",
        names,
        Problem.of(fed),
        get_model("mlr"),
        Training.from_config(training),
        chosen,
        channel,
        rules=rules,
    )


class Room:
    """A hub and its clients in one room, with what can go wrong between them."""

    def __init__(self, plan: Plan, fed: Federation, folder: Path) -> None:
        self.plan, self.fed, self.folder = plan, fed, folder
        self.hub_folder = folder / "hub"
        self.hub = self.new_hub()
        self.clients = [self.new_client(k) for k in range(CLIENTS)]
        self.on_wire = {"up": 0, "down": 0}

    def new_hub(self) -> Hub:
        return Hub(self.plan, self.hub_folder, say=lambda sentence: None)

    def new_client(self, k: int, *, newcomer: bool = False) -> Client:
        return Client(
            self.plan,
            k,
            self.fed.subset(np.array([k])),
            self.folder / f"client{k}",
            share_scores=True,
            newcomer=newcomer,
        )

    def ask(self, k: int, request: Request) -> Reply:
        """Through an envelope and back, as over a wire."""
        request = messages.opened(Request, messages.envelope(request), request.frames)
        reply = self.clients[k].answer(request)
        self.on_wire["down"] += messages.total(request.frames)
        self.on_wire["up"] += messages.total(reply.frames)
        return messages.opened(Reply, messages.envelope(reply), reply.frames)

    def round(self, silent: tuple[int, ...] = ()) -> None:
        for _ in range(2):  # a second time for those that lost track
            for k, request in self.hub.requests().items():
                if k not in silent:
                    self.hub.take(k, self.ask(k, request))
        assert set(self.hub.missing) <= set(silent)
        self.hub.close()

    def run(self, disturb: Callable[[Room], None] = lambda room: None) -> Room:
        while not self.hub.done:
            self.round()
            disturb(self)
        for k, request in self.hub.farewells().items():
            assert self.hub.take(k, self.ask(k, request))
        self.hub.end()
        return self


def simulated(plan: Plan, fed: Federation) -> Simulator:
    simulator = Simulator(
        plan.method, fed, plan.model, plan.training, plan.coupling, channel=plan.channel
    )
    while simulator.t < plan.training.rounds:
        simulator.advance(plan.training.rounds - simulator.t)
    return simulator


def numbers(model: Vector) -> Any:
    """The numbers of a model, flat. What kNN remembers is padded to the largest client that is
    known, which is another one in a deployment: only real rows count.
    """
    tree = model.tree
    if isinstance(tree, Stored):
        real = int(tree.size)
        tree = tree._replace(features=tree.features[:real], targets=tree.targets[:real])
    return Vector(tree).flat()


def assert_same(room: Room, fed: Federation, rtol: float = 1e-5) -> None:
    simulator = simulated(room.plan, fed)
    for k in range(CLIENTS):
        mine = room.clients[k].models()
        for view, model in simulator.models(k).items():
            expected = numbers(model)
            np.testing.assert_allclose(
                numbers(mine[view]),
                expected,
                rtol=rtol,
                atol=rtol * np.abs(expected).max(),
                err_msg=f"client {k}, {view}",
            )
    bill = room.hub.ledger.rows()
    bill = bill[bill[:, 0] < room.plan.training.rounds]
    together = lambda rows: in_order(rows, room.plan.alone)
    np.testing.assert_array_equal(together(bill), together(simulator.ledger.rows()))
    assert room.on_wire == {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
