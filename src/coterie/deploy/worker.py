"""One client's side of a method: its own data, its turn in a round, its models and how they do.

Knows nothing of wires.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from coterie.channel import ends
from coterie.channel.link import Outgoing
from coterie.core.errors import InvalidInput
from coterie.core.metrics import metric_of
from coterie.core.typing import PyTree
from coterie.core.vector import Vector
from coterie.data.federation import Federation
from coterie.deploy import programs
from coterie.deploy.plan import Plan
from coterie.deploy.setup import Setup
from coterie.engine.evaluate import score_models, to_device
from coterie.engine.exchange.base import Turn
from coterie.engine.setting import ClientState, Spec


@dataclasses.dataclass(frozen=True)
class Worked:
    """A client's round, but for what others do in it."""

    state: ClientState
    message: PyTree
    """As it arrives, where it is sent."""
    wire: bytes | None
    """Nothing where it is not sent."""
    gradients: int


class Worker(Setup):
    """A client's own work under a plan. `data` is a federation of one: this client.

    With a PyTorch `loader` mini-batches come from that (it may augment), and `data` is what models
    are scored on.
    """

    def __init__(self, plan: Plan, number: int, data: Federation, loader: Any = None) -> None:
        if data.clients != 1:
            raise InvalidInput(
                f"the data is of {data.clients} clients, but must be of one: a client has its own"
                " and nobody else's."
            )
        found, planned = data.shape, plan.shape
        for what, mine, theirs in (
            ("a task", found.task, planned.task),
            ("inputs of the shape", found.inputs, planned.inputs),
            ("outputs", found.outputs, planned.outputs),
        ):
            if mine != theirs:
                raise InvalidInput(f"the data has {what} {mine}, but the plan says {theirs}.")
        if not 0 <= number < plan.size:
            raise InvalidInput(
                f"the client's number is {number}, but must be from 0 to {plan.size - 1}."
            )
        super().__init__(plan, number, data.train, data.validation)
        self.metric = metric_of(plan.training.metric, planned.task)
        splits = {"validation": data.validation, "test": data.test}
        with self.precision():
            self.splits = {n: to_device(s, self.dtype) for n, s in splits.items() if len(s)}
        self.works: Spec = self.spec
        """The spec of its local work."""
        if loader is not None:
            if self.method.validates:
                raise InvalidInput(
                    f"{plan.method.name}.guard is true, but a PyTorch loader has no validation rows"
                    " of its own; give the client's data instead."
                )
            from coterie.models.torch.loader import LoaderClient

            precision = plan.training.precision
            own = LoaderClient(
                self.model, loader, seed=self.seed, client=number, precision=precision
            )
            self.samples = own.samples
            self.works = programs.LoaderSpec(**vars(self.spec), loader=own)

    def turn(self, state: ClientState, received: PyTree, t: int, *, sending: bool) -> Turn:
        """The client's turn in round t. Raises InvalidInput when it gives NaN or infinity."""
        made: Turn = programs.turn(
            *(self.works, self.setting, self.plan.at(t), self.number, state, received),
            sending=sending,
        )
        if not bool(made.finite):
            raise InvalidInput(
                f"the local work of round {t} gave NaN or infinity; nothing is sent and the state"
                " before it is kept: lower the step size."
            )
        return made

    def work(
        self, state: ClientState, received: PyTree, t: int, *, sending: bool, whole: bool
    ) -> Worked:
        """The turn, and its message as bytes; `whole`: in full, over a link whose other end may be
        out of step.
        """
        whole = whole and self.up.copies
        made = self.turn(state, received, t, sending=sending and not whole)
        after, message, wire = made.state, made.message, None
        if sending and not bool(made.dropped):
            if whole:
                sender = ends.Sender(self.up, self.channel, message, state.up)
                reference = self.method.reference(received, message) if self.star else None
                wire, message = sender.send_whole(Outgoing(message, reference, t=t))
                after = after._replace(up=sender.link)
            else:
                assert made.sent is not None
                wire = ends.encoded(self.up, self.channel, made.sent)
        return Worked(after, message, wire, int(made.gradients))

    def models(self, received: PyTree, own: PyTree, t: int) -> dict[str, Vector]:
        """The client's models after t rounds, by view."""
        found: dict[str, Vector] = programs.models(
            self.spec, self.setting, self.plan.at(t), self.number, received, own
        )
        return found

    def scores(self, received: PyTree, own: PyTree, t: int) -> dict[str, float]:
        """How these models do on this client's own data: `test/personal` → the score by the
        plan's metric (the larger the better: errors are negated), and the losses.
        """
        if not self.splits:
            return {}
        models, views = self.models(received, own, t), self.method.model_views
        out = {}
        for split, held in self.splits.items():
            stacked = [models[view].map(lambda leaf: leaf[None]) for view in views]
            loss, score = score_models(self.spec, stacked, held, self.metric)
            for i, view in enumerate(views):
                out[f"{split}/{view}"] = float(score[i, 0])
                out[f"{split}-loss/{view}"] = float(loss[i, 0])
        return {key: value for key, value in out.items() if np.isfinite(value)}
