"""The models that clients predict with, of all clients: which of them need training data whenever
they are asked for, and all of them at once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Never

import jax
import numpy as np

from coterie.core.vector import Vector
from coterie.engine.common import Common
from coterie.engine.in_turn import in_turn
from coterie.engine.mesh import each_client, everywhere
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec
from coterie.engine.simulator import Simulator

AT_ONCE = 256
"""Clients whose models are worked out side by side."""


class _Touched(Exception):
    """A method looked at data."""


class _NoRows:
    """Stands where data would be, and tells who looks."""

    def _told(self, *_: Any, **__: Any) -> Never:
        raise _Touched

    __getitem__ = __getattr__ = __array__ = __jax_array__ = __len__ = _told
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = _told
    __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = __matmul__ = __rtruediv__ = _told


def adapts_on_data(simulator: Simulator) -> bool:
    """Whether a client's models are worked out from its training data when they are asked for, as
    Per-FedAvg's are; else they follow from the states alone.
    """
    with simulator.precision():
        now, client = simulator.now(np.zeros(1, int)), 0
        row = jax.tree.map(lambda leaf: leaf[0], simulator.store.gather(np.zeros(1, int)))
        missing, given = _NoRows(), now.objective(client)
        held: Any = None if given.held is None else missing
        blind = dataclasses.replace(
            given, x=missing, y=missing, start=missing, size=missing, held=held
        )

        def models(row: ClientState, hub: HubState) -> dict[str, Vector]:
            said = simulator.exchange.speak(now, hub)
            heard = simulator.exchange.hear(now, hub, said, client, row)
            found: dict[str, Vector] = simulator.method.predictors(
                heard.received, row.method_state, blind
            )
            return found

        try:
            jax.eval_shape(models, row, simulator.hub_state)
        except (_Touched, TypeError):
            return True
        return False


def _chunk(
    spec: Spec, setting: Setting, hub: HubState, some: tuple[Any, ClientState], t: Any
) -> dict[str, Vector]:
    one = lambda common, client, row: common.models(spec, client, row)
    common = Common.of(Round(spec, setting, t), hub)
    found: dict[str, Vector] = everywhere(spec.mesh, each_client(spec.mesh, one, common, *some))
    return found


_compiled = in_turn(_chunk, static_argnames="spec")


def all_views(simulator: Simulator) -> dict[str, Vector]:
    """Every view of all members, stacked along axis 0 as numpy arrays.

    A view that is the same for all is stacked once: its arrays have the length 1.
    """
    sim, n = simulator, simulator.spec.clients
    width = min(AT_ONCE, n)
    parts: list[dict[str, Vector]] = []
    with sim.precision():
        for begin in range(0, n, width):
            ids = np.arange(begin, min(begin + width, n))
            some = np.resize(ids, width)
            setting = sim.supply.setting(sim.setting, some)
            found = _compiled(
                sim.spec, setting, sim.hub_state, (some, sim.store.gather(some)), sim.t
            )
            count = len(ids)
            parts.append(
                {view: v.map(lambda a: np.asarray(a)[:count]) for view, v in found.items()}  # noqa: B023
            )
    whole = {
        view: parts[0][view].map(lambda *a: np.concatenate(a), *(p[view] for p in parts[1:]))
        for view in parts[0]
    }
    return {view: _once(v) for view, v in whole.items()}


def _once(stacked: Vector) -> Vector:
    """The first row alone, where all are the same."""
    if all((leaf == leaf[:1]).all() for leaf in stacked.leaves):
        return stacked.map(lambda leaf: leaf[:1])
    return stacked
