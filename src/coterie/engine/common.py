"""What all clients read in a round or when they predict: the setting, the hub and what it says.

It is handed to every device (`engine/mesh.py`), so it is one tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coterie.core.typing import Scalar
from coterie.core.vector import Vector
from coterie.engine.exchange import exchange_of
from coterie.engine.exchange.base import Heard
from coterie.engine.mesh import everywhere
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec


class Common(NamedTuple):
    """What all clients read in round t."""

    setting: Setting
    hub: HubState
    broadcast: Any
    t: Scalar

    @classmethod
    def of(cls, now: Round, hub: HubState) -> Common:
        """The hub speaks."""
        broadcast = exchange_of(now.method).speak(now, hub)
        return cls(now.setting, hub, everywhere(now.spec.mesh, broadcast), now.t)

    def round(self, spec: Spec) -> Round:
        return Round(spec, self.setting, self.t)

    def heard(self, spec: Spec, client: Scalar, row: ClientState) -> Heard:
        """What reaches a client."""
        exchange = exchange_of(self.setting.method)
        return exchange.hear(self.round(spec), self.hub, self.broadcast, client, row)

    def models(self, spec: Spec, client: Scalar, row: ClientState) -> dict[str, Vector]:
        """The models that a client predicts by, by view."""
        received = self.heard(spec, client, row).received
        objective = self.round(spec).objective(client)
        found: dict[str, Vector] = self.setting.method.predictors(
            received, row.method_state, objective
        )
        return found

    def views(self, spec: Spec, client: Scalar, row: ClientState) -> list[Vector]:
        """The same in the order of the method's views."""
        models = self.models(spec, client, row)
        return [models[view] for view in self.setting.method.model_views]
