"""Clients that train without sending: their work is put off until somebody looks at them.

In pFedMe all N clients train in every round, and S of them send. What another one keeps of a round
depends on the hub's model before it alone, and takes the place of what it had
(`Method.forgets`). So a round trains the cohort only. When somebody looks at clients' states, those
that were not sampled do their work of the last round, from what the hub said in it. Sampled clients
are one batch and the others another one, whoever looks and when: no bit depends on that. The bill
is that of a round in which all train.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import Diverged
from coterie.core.typing import Array, Scalar
from coterie.engine.common import Common
from coterie.engine.exchange.base import honest
from coterie.engine.in_turn import in_turn
from coterie.engine.mesh import everywhere, spread
from coterie.engine.rounds import clients, one_turn, put_back
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec, Who
from coterie.engine.store import DeviceStore
from coterie.methods.base import Method

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator

NOBODY: NDArray[np.int64] = np.zeros(0, np.int64)


def puts_off(method: Method, cohort: int, number: int, rows: str, absent: Any) -> bool:
    """Whether unsampled clients' work is put off.

    Not where a client may drop out, because it then keeps what it had; and not where every device
    has its own clients' rows, because a cohort is not spread like these.
    """
    return method.forgets and cohort < number and absent is None and rows != "apart"


def silent_turns(
    spec: Spec, setting: Setting, hub: HubState, rows: ClientState, ids: Array, t: Scalar
) -> tuple[ClientState, Array]:
    """The turns of clients that send nothing in round t, before which the hub was in this state:
    what they keep, and whether that is finite.
    """
    now = Round(dataclasses.replace(spec, at_once=spec.unseen), setting.poisoned(t), t)

    def turn(common: Common, client: Scalar, row: ClientState) -> tuple[ClientState, Scalar]:
        done = one_turn(spec, common, client, row, False)
        return done.state, done.finite

    kept, finite = clients(now, turn, Common.of(now, hub), Who(ids), rows)
    return spread(spec.mesh, kept), everywhere(spec.mesh, honest(now, finite, ids))


@partial(in_turn, static_argnames="spec", donate_argnames="rows")
def _on_device(
    spec: Spec, setting: Setting, hub: HubState, rows: ClientState, ids: Array, t: Scalar
) -> tuple[ClientState, Array]:
    """The same on everybody's states."""
    taken = jax.tree.map(lambda r: r[ids], rows)
    new, finite = silent_turns(spec, setting, hub, taken, ids, t)
    return put_back(spec, rows, ids, new), finite


_from_store = in_turn(silent_turns, static_argnames="spec")


class Unseen:
    """The clients of a simulator whose work of the last round is still to be done."""

    def __init__(self) -> None:
        self.put_off(None, 0)

    def put_off(self, hub: HubState | None, t: int) -> None:
        """Round t is over but for those that were not sampled; `hub` is what it was before. None:
        nothing is left to do.
        """
        self.hub, self.t, self.broken = hub, t, NOBODY

    def catch_up(self, sim: Simulator) -> None:
        """They do it now."""
        if self.hub is None:
            return
        hub, self.hub = self.hub, None
        with sim.precision():
            ids = np.setdiff1d(np.arange(sim.spec.clients), sim.cohort(self.t)).astype(np.int32)
            setting, store = sim.supply.setting(sim.setting, ids, self.t), sim.kept
            if isinstance(store, DeviceStore):
                store.rows, finite = _on_device(sim.spec, setting, hub, store.rows, ids, self.t)
            else:
                rows = store.gather(ids)
                rows, finite = _from_store(sim.spec, setting, hub, rows, ids, self.t)
                store.scatter(ids, rows)
            self.broken = ids[~np.asarray(finite)]

    def check(self, sim: Simulator) -> None:
        """Raises Diverged where somebody's work is not finite."""
        self.catch_up(sim)
        if len(self.broken):
            conditions = [str(c) for c in sim.conditions() if not c.holds]
            who = sim.members[self.broken].tolist()
            raise Diverged(sim.method.title, self.t + 1, who, conditions)
