"""Trying others' models on clients' own validation rows, for rules that ask for it
(`coupling/learnt/tried.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.channel.codec import size_of
from coterie.core.errors import InvalidInput
from coterie.core.typing import Array, PyTree
from coterie.core.vector import Vector
from coterie.coupling.learnt.base import Evidence, GraphRule
from coterie.engine.exchange.base import Bill
from coterie.engine.in_turn import in_turn
from coterie.engine.prepare import held_rows
from coterie.engine.setting import Round

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator

AT_ONCE = 8
"""Clients that try models side by side."""


def prepare_to_try(sim: Simulator, rule: Any) -> None:
    """Give rounds the validation rows that clients try models on. Refuses what cannot be tried."""
    message = sim.method.message(sim.method.client_init(sim.template))
    shapes = lambda tree: [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
    if not isinstance(message, Vector) or shapes(message) != shapes(sim.template):
        raise InvalidInput(
            f"the rule {rule.name!r} tries others' models, but the messages of {sim.method.name}"
            ' are no models; take "kin".'
        )
    held = held_rows(sim.there, f"the rule {rule.name!r}")
    sim.setting = sim.setting._replace(data=sim.setting.data._replace(held=held))


def _losses(now: Round, pool: Vector, sets: Array) -> Array:
    """The loss at client k of the mean model of each of its sets, (N, R)."""

    def one(client: Array, mine: Array) -> Array:
        there = (mine >= 0).astype(pool.dtype)
        share = there / jnp.maximum(jnp.sum(there, 1, keepdims=True), 1)
        mean = lambda leaf: jnp.einsum("rs,rs...->r...", share, leaf[jnp.maximum(mine, 0)])
        return now.objective(client).held_losses(pool.map(mean))

    return lax.map(lambda a: one(*a), (jnp.arange(len(sets)), sets), batch_size=AT_ONCE)


_compiled = in_turn(
    lambda spec, setting, t, pool, sets: _losses(Round(spec, setting, t), pool, sets),
    static_argnums=0,
)


def losses_of(sim: Simulator) -> Any:
    """A function of sets of clients, (N, R, S) with −1 for nobody: the mean loss on every client's
    validation rows of each set's mean model, (N, R).
    """
    with sim.precision():
        everyone = sim.store.gather(np.arange(sim.spec.clients))
        pool: PyTree = jax.vmap(sim.method.message)(everyone.method_state)

    def losses(sets: NDArray[Any]) -> NDArray[np.float64]:
        with sim.precision():
            found = _compiled(sim.spec, sim.setting, sim.t, pool, jnp.asarray(sets))
        return np.asarray(found, np.float64)

    return losses


def models_bill(rule: GraphRule, evidence: Evidence, sim: Simulator) -> Bill:
    """What it costs that models are tried: a hub hears each once and passes it on; without a hub
    everybody sends its model to all that try it.
    """
    size = int(size_of(sim.method.message(sim.method.client_init(sim.template))))
    tried, everyone = rule.downloads(evidence), np.arange(evidence.clients)
    down = size * (tried >= 0).sum(1)
    asked = np.bincount(tried[tried >= 0], minlength=evidence.clients)
    up = size * (np.minimum(asked, 1) if sim.method.hub_between else asked)
    return Bill(everyone, up, down, 0)
