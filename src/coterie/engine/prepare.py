"""From options and data to what rounds are given."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from coterie.adversary import Attack, Threat, draw_malicious
from coterie.channel import link
from coterie.channel.base import Channel
from coterie.channel.codec import size_of
from coterie.core.errors import InvalidInput
from coterie.core.typing import Scalar
from coterie.coupling.graph import PAIRWISE, Graph, complete
from coterie.coupling.learnt.base import GraphRule, empty
from coterie.data.federation import Federation
from coterie.engine.apart import EqualShares, OwnRows, ScatteredRows, Shares, shares_of
from coterie.engine.edges import Edges
from coterie.engine.evaluate import DeviceSplit, to_device
from coterie.engine.exchange import exchange_of
from coterie.engine.mesh import devices_for, memories, mesh_of, put
from coterie.engine.setting import Coupled, Data, Spec
from coterie.engine.side_by_side import between, side_by_side
from coterie.engine.supply import FEW, FromHost, Shelf, Supply
from coterie.engine.training import Training
from coterie.methods.base import Method, PooledMethod
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod
from coterie.models.base import Model
from coterie.models.build import learner_of
from coterie.models.objective import Held


def spread_over(
    method: Method, model: Model, fed: Federation, options: Training, cohort: int
) -> Mesh | None:
    """The devices that clients are spread over."""
    if exchange_of(method).pooled:
        return None
    trainers, work = fed.clients if method.trains_all else cohort, method.work()
    if options.sampling == "full":
        samples = float(fed.train.sizes.mean()) * (work.steps or work.epochs or 1)
    elif work.epochs is not None:
        samples = float(fed.train.sizes.mean()) * work.epochs
    else:
        samples = options.batch_size * (work.steps or 1)
    # Forwards, and twice as much backwards, each with a product and a sum per parameter.
    operations = 6.0 * trainers * samples * model.parameters()
    return mesh_of(devices_for(options.devices, trainers, operations))


def spec_of(
    method: Method,
    model: Model,
    fed: Federation,
    options: Training,
    cohort: int,
    *,
    mesh: Any,
    later: bool = False,
) -> Spec:
    """All that is static; `method` is bound. `later`: whether unsampled clients work only when
    somebody looks at them.
    """
    n, pooled = fed.clients, exchange_of(method).pooled
    if options.sampling == "full":
        batch = len(fed.train) if pooled else fed.shape.largest
    else:
        together = method.batches(cohort) if isinstance(method, PooledMethod) else 1
        batch = options.batch_size * together
    learner = learner_of(model, fed.shape, batch, options.sampling)
    trainers = cohort if later else method.takers(cohort, n)
    steps = -(-fed.train.sizes // batch)
    uneven = bool(method.work().epochs is not None and steps.max() > 1.5 * steps.mean())

    def at_once(trainers: int) -> int:
        if options.clients_at_once is not None:
            return min(options.clients_at_once, trainers)
        width = jnp.dtype(options.precision).itemsize
        shared = sum(np.size(leaf) for leaf in jax.tree.leaves(method))
        inside = between(model, fed.input_shape, batch)
        found = side_by_side(trainers, model.parameters() * width, shared * width, inside)
        return min(found, trainers, max(1, -(-trainers // 8)) if uneven else trainers)

    # Of each device's share, so that no smaller group is left over: it would be compiled, too.
    others = at_once(-(-(n - cohort) // (1 if mesh is None else mesh.size))) if later else 0
    return Spec(learner, n, cohort, at_once(trainers), uneven, mesh, others)


Rows = Literal["device", "host", "apart", "scattered", "supplied"]
"""Where training data are: all on every device; on the host, with the graph, as the clients' states
are, because a round takes few of the clients; each client's on its device; an equal share of them
on every device; or on the host while the graph is on every device.
"""


class OnDevice(NamedTuple):
    """What several runs on one federation can share; shelves where it is not on the device."""

    train: DeviceSplit | Shelf
    splits: dict[str, Any]
    graph: Coupled
    mesh: Mesh | None
    rows: Rows
    shares: dict[Any, Any]
    """What devices have of the rows that are shared out, once it is known."""

    def shared(self, key: Any, make: Any) -> Any:
        """What one run has shared out is there for the others."""
        if key not in self.shares:
            self.shares[key] = make()
        return self.shares[key]


def rows_kept(
    method: Method,
    options: Training,
    cohort: int,
    clients: int,
    graph: Graph | GraphRule | None,
    *,
    mesh: Mesh | None,
) -> Rows:
    """Where training data are.

    No accelerator has all of them, unless a rule lets clients try others' models: then everybody
    looks at validation rows at any time.
    """
    rule = graph if isinstance(graph, GraphRule) else None
    takers = method.takers(cohort, clients)
    stored, drawn = options.store == "device", getattr(method, "edges", None) is not None
    shared = memories(mesh) > 1 and not (rule is not None and rule.tries_models)
    if shared and takers == clients and not drawn:
        return "apart"
    pooled = exchange_of(method).pooled
    if not stored and rule is None and not pooled and takers * FEW <= clients:
        return "host"
    if shared:
        return "scattered" if stored and not drawn else "supplied"
    return "device"


def on_device(
    fed: Federation,
    options: Training,
    graph: Graph | None,
    mesh: Mesh | None,
    rows: Rows = "device",
) -> OnDevice:
    """Data and graph of a run. Rows that are shared out come later (`supplied`)."""
    dtype = jnp.dtype(options.precision)
    kept: Any = Shelf if rows != "device" else partial(to_device, mesh=mesh)
    train = kept(fed.train, dtype)
    splits = {"validation": fed.validation, "test": fed.test}
    held = {name: kept(split, dtype) for name, split in splits.items() if len(split)}
    held |= {"train": train} if options.train_metrics else {}
    table = rows == "host" and graph is not None and narrow(graph)
    here = put(mesh, coupled(None if table else graph, dtype))
    return OnDevice(train, held, here, mesh, rows, {})


def supplied(
    there: OnDevice,
    data: Data,
    lying: Any,
    spec: Spec,
    graph: Graph | None,
    edges: Edges | None,
) -> tuple[Data, Supply]:
    """The data of a setting, and what gives rounds their part of them; `lying` are the targets of
    malicious clients.
    """
    if not isinstance(there.train, Shelf):
        given = None if lying is None else jnp.asarray(lying)
        return data._replace(lying_y=given), Supply(edges)
    train, mesh = there.train, there.mesh
    held = None if data.held is None else there.splits["validation"]
    if mesh is not None and there.rows == "apart":

        def deal() -> Any:
            dealt = shares_of(train.size, spec)
            return [None if s is None else Shares(s, dealt, mesh) for s in (train, held)]

        key = spec.sort_by_work, held is None
        return data, OwnRows(train, held, lying, *there.shared(key, deal))
    if mesh is not None and there.rows == "scattered":
        cut = lambda s: None if s is None else EqualShares(s, spec.cohort, mesh)
        shares = there.shared(held is None, lambda: [cut(s) for s in (train, held)])
        return data, ScatteredRows(train, held, lying, *shares)
    table = graph if there.rows == "host" and there.graph.dense is None else None
    return data, FromHost(train, held, lying, table, edges)


def edges_of(
    method: Method, channel: Channel, graph: Graph | None, seed: int, rule: Any
) -> Edges | None:
    """The edges that rounds draw from; None where they take all."""
    count = getattr(method, "edges", None)
    if count is None:
        return None
    assert graph is not None
    if isinstance(rule, GraphRule):
        raise InvalidInput(
            f"{method.name}.edges is {count}, but the graph is learnt by a rule; edges are drawn"
            " from a graph that is given."
        )
    if not link.graph_up(channel).passes:
        raise InvalidInput(
            f"{method.name}.edges is {count} and the channel is {channel.name!r}, whose messages"
            " all neighbours must follow; with edges that are drawn it must be 'plain' at full"
            " precision."
        )
    return Edges(graph, count, seed)


def held_for(method: Method, there: OnDevice) -> Held | None:
    """Validation rows for a method that looks at them."""
    return held_rows(there, f"{method.name}.guard") if method.validates else None


def held_rows(there: OnDevice, who: str) -> Held:
    """Everybody's validation rows."""
    if "validation" not in there.splits:
        raise InvalidInput(
            f"{who} looks at clients' own validation rows, but nobody has any; give some, e.g."
            " data.validation = 0.2."
        )
    held = there.splits["validation"]
    return Held(*(held.shapes() if isinstance(held, Shelf) else held))


def data_of(
    held: DeviceSplit | Shelf, l2: Scalar, batch_schedule: Any, *, pooled: bool = False
) -> Data:
    """Training data as rounds see it; pooled, every client has everybody's."""
    if isinstance(held, Shelf):
        x, y, start, size = held.shapes()
        return Data(x, y, start, size, l2, batch_schedule)
    start, size = held.start, held.size
    if pooled:
        rows = jnp.sum(size, dtype=size.dtype)
        start, size = jnp.zeros_like(start), jnp.full_like(size, rows)
    return Data(held.x, held.y, start, size, l2, batch_schedule)


def data_bytes(fed: Federation, options: Training) -> NDArray[np.int64]:
    """What each client's training data takes, in the precision of the run."""
    row = size_of((fed.train.x[:1].astype(options.precision), fed.train.y[:1]))
    return np.asarray(fed.train.sizes * row)


def malicious(attack: Attack | None, fed: Federation, seed: int) -> NDArray[np.bool_]:
    """Who lies."""
    n = fed.clients
    if attack is None:
        return np.zeros(n, bool)
    drawn = draw_malicious(seed, n, attack.fraction)
    if drawn.all():
        raise InvalidInput(
            f"attack.fraction is {attack.fraction:g}, but must leave at least 1 of {n} clients"
            " honest."
        )
    return drawn


def threat(
    attack: Attack | None, lie: NDArray[np.bool_], fed: Federation, seed: int
) -> tuple[Threat | None, NDArray[np.int32] | None]:
    """The attack on a run, and the targets that malicious clients train on where it is on data."""
    if attack is None:
        return None, None
    if not attack.on_data:
        return Threat(attack, jnp.asarray(lie)), None
    if fed.task != "classification":
        raise InvalidInput(
            f"the attack is {attack.name!r}, but that needs class labels and the task is"
            " regression."
        )
    y = np.array(fed.train.y, np.int32)
    for k in np.flatnonzero(lie):
        rows = slice(int(fed.train.offsets[k]), int(fed.train.offsets[k + 1]))
        rng = np.random.default_rng([seed, int(k), 0xBAD])
        y[rows] = attack.poisoned(y[rows], fed.classes, rng)
    return Threat(attack, jnp.asarray(lie)), y


def graph_for(method: Method, graph: Graph | GraphRule | None, clients: int) -> Graph:
    """The graph that a method begins with: the given one, all pairs where none is given, or none
    yet where a rule learns it.
    """
    if isinstance(graph, GraphRule):
        if not isinstance(method, GraphMethod):
            raise InvalidInput(
                f"the graph is learnt by a rule, but the method is {method.name}, which takes a"
                " graph as it is given; rules learn one for fedu, dfedu, dada and graph-proj."
            )
        return empty(clients)
    return (complete(clients) if graph is None else graph).check_size(clients)


def tied(method: Method, graph: Graph | GraphRule | None, dtype: Any) -> Method:
    """A bound method whose hub knows the graph, where there is one and it merges messages."""
    if not isinstance(graph, Graph) or not isinstance(method, StarMethod):
        return method
    return method.over(jnp.asarray(graph.weights.toarray(), dtype))


def coupled(graph: Graph | None, dtype: Any) -> Coupled:
    """A graph as rounds see it."""
    if graph is None:
        return Coupled()
    if narrow(graph):
        index, weight = graph.table()
        return Coupled(near=jnp.asarray(index), weight=jnp.asarray(weight, dtype))
    n = graph.clients
    if n > PAIRWISE:
        raise InvalidInput(
            f"the {graph.name} graph ties a client to {graph.widest:,} of {n:,} others, which takes"
            f" a matrix; with more than {PAIRWISE:,} clients nobody may have that many neighbours."
        )
    return Coupled(dense=jnp.asarray(graph.weights.toarray(), dtype))


def narrow(graph: Graph) -> bool:
    """Whether a graph is given as a table of neighbours.

    That costs its largest degree per client, a matrix N: what is clearly smaller is taken.
    """
    return graph.widest * 4 < graph.clients
