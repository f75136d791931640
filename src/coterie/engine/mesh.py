"""Clients spread over devices: cores of a CPU, GPUs or TPUs.

A mesh has one axis, the clients. What a client does by itself (local work, being pulled, being
evaluated) is done for the clients of each device apart. What a hub or a neighbour reads is gathered
first, in the order of clients, and is then the same on all devices: nothing is summed in another
order than on one device. Without a mesh (None) all functions here work on one device.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from coterie.core.errors import InvalidInput
from coterie.core.pytree import tree
from coterie.core.typing import PyTree
from coterie.engine.in_turn import in_turn

AXIS = "clients"
EVERYWHERE, SPREAD = PartitionSpec(), PartitionSpec(AXIS)
WORK = 1.2e7
"""Floating-point operations of a round below which one device is as quick as several
(`bench/devices.py` measures it).
"""
LARGE = 1 << 16
"""Numbers of an array that is worth sharing between the devices of a CPU."""
ALIGNED = 64
"""Bytes at which an array must begin for a CPU device to take it as it is."""


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


PATIENCE = {"warn_stuck": 600, "terminate": 7 * 24 * 3600}
"""Seconds that a device of a CPU waits for the others before it says so, and before XLA ends the
process. XLA's own are 20 and 40, and one device may well work for longer than another.
"""
KNOWN = (0, 8), (0, 10)
"""Versions of JAX, the first and the last that are known to have these two flags: both were tried.
XLA ends a process that has a flag which it does not know.
"""


def be_patient() -> None:
    """Let devices wait for each other, unless the user has said for how long."""
    if not KNOWN[0] <= jax.__version_info__[:2] <= KNOWN[1]:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    for event, seconds in PATIENCE.items():
        name = f"--xla_cpu_collective_call_{event}_timeout_seconds"
        if name not in flags:
            flags = f"{flags} {name}={seconds}".strip()
    os.environ["XLA_FLAGS"] = flags


def cores_as_devices() -> None:
    """Make every core a device of JAX, unless the user has said how many there are to be, or JAX
    has started already.
    """
    asked = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if asked or getattr(jax.config, "jax_num_cpu_devices", 1) >= 0:
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:  # somebody has computed something: then there is one
        return


be_patient()
cores_as_devices()


def devices_for(asked: int | None, clients: int, work: float) -> int:
    """How many devices to spread the clients of a round over, whose local work takes about so many
    operations: as many as asked for, or as many as pay. Several processes use all they have.
    """
    there, processes = jax.device_count(), jax.process_count()
    if processes > 1:
        if asked not in (None, there):
            raise InvalidInput(
                f"training.devices is {asked}, but the {processes} processes of this run use all"
                f" {there} devices that they have; leave it out, or set JAX_NUM_CPU_DEVICES, the"
                " devices of each process."
            )
        return there
    if asked is not None:
        if asked > there:
            raise InvalidInput(
                f"training.devices is {asked}, but there {'is' if there == 1 else 'are'} {there};"
                " a CPU has as many as cores, or as JAX_NUM_CPU_DEVICES says before JAX starts."
            )
        return asked
    if there == 1 or work < WORK:
        return 1
    return max(1, min(there, clients))


def mesh_of(count: int) -> Mesh | None:
    """A mesh of the first `count` devices; None for a single one."""
    return Mesh(np.array(jax.devices()[:count]), (AXIS,)) if count > 1 else None


@tree
@dataclasses.dataclass(frozen=True)
class Apart:
    """An array of which every device has its own part, along a first axis over devices. Clients
    that work on a device see that part alone.
    """

    parts: Any

    @property
    def dtype(self) -> Any:
        return self.parts.dtype


def _is_apart(node: Any) -> bool:
    return isinstance(node, Apart)


def memories(mesh: Mesh | None) -> int:
    """How many copies of an array there are when all devices have it: those of a CPU read one."""
    return 1 if mesh is None or mesh.devices.flat[0].platform == "cpu" else mesh.size


def each_client(
    mesh: Mesh | None,
    one: Callable[..., PyTree],
    common: PyTree,
    *stacked: PyTree,
    at_once: int | None = None,
) -> PyTree:
    """`one(common, client's own …)` for all clients, stacked: each device does its share, at most
    `at_once` side by side. `common` is what all of them read.

    A number of clients that cannot be shared out equally is filled up by repeating the last one
    (with `Apart` data that one may see another's; what it does is dropped).
    """
    if mesh is None:
        return _share(one, at_once, common, *stacked)
    nodes, structure = jax.tree.flatten(common, is_leaf=_is_apart)
    whole = [None if _is_apart(node) else node for node in nodes]
    parts = [node.parts if _is_apart(node) else None for node in nodes]

    def work(whole: list[Any], parts: list[Any], *stacked: PyTree) -> PyTree:
        mine = [a if part is None else part[0] for a, part in zip(whole, parts, strict=True)]
        return _share(one, at_once, jax.tree.unflatten(structure, mine), *stacked)

    count = len(jax.tree.leaves(stacked)[0])
    lacking = -count % mesh.size
    if lacking:
        fill = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], lacking, axis=0)])
        stacked = jax.tree.map(fill, stacked)
    given = (EVERYWHERE, SPREAD, *(SPREAD for _ in stacked))
    found = jax.shard_map(work, mesh=mesh, in_specs=given, out_specs=SPREAD, check_vma=False)(
        whole, parts, *stacked
    )
    return jax.tree.map(lambda leaf: leaf[:count], found) if lacking else found


def _share(one: Callable[..., PyTree], at_once: int | None, common: PyTree, *stacked: Any) -> Any:
    """What one device does."""
    count = len(jax.tree.leaves(stacked)[0])
    if at_once is None or at_once >= count:
        return jax.vmap(partial(one, common))(*stacked)
    return lax.map(lambda own: one(common, *own), stacked, batch_size=at_once)


def everywhere(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Inside a program: the whole of these arrays on every device."""
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, EVERYWHERE)
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, whole), tree)


def spread(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Inside a program: arrays over clients, each device its share, where shares are equal."""
    if mesh is None:
        return tree
    place = lambda leaf: lax.with_sharding_constraint(leaf, _shares(mesh, leaf))
    return jax.tree.map(place, tree)


def _shares(mesh: Mesh, leaf: Any) -> NamedSharding:
    equal = np.ndim(leaf) > 0 and np.shape(leaf)[0] % mesh.size == 0
    return NamedSharding(mesh, SPREAD if equal else EVERYWHERE)


def put(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Arrays on every device, before a program is called."""
    if mesh is None:
        return tree
    # JAX asks whether all processes give the same, and compares what it has rounded with a number
    # of Python's that it has not: so all are rounded first.
    rounded = lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    return jax.device_put(jax.tree.map(rounded, tree), NamedSharding(mesh, EVERYWHERE))


def put_constants(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Arrays that nobody will change, on every device: all devices of a CPU read the same memory,
    which a large projection would take several times otherwise.
    """
    if mesh is None:
        return tree

    def one(leaf: Any) -> Any:
        large = isinstance(leaf, jax.Array) and leaf.size >= LARGE
        return put_data(mesh, np.asarray(leaf)) if large else put(mesh, leaf)

    return jax.tree.map(one, tree)


def put_clients(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Arrays over clients, each device its share where shares are equal."""
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: jax.device_put(leaf, _shares(mesh, leaf)), tree)


@partial(in_turn, static_argnums=0)
def _taken(mesh: Mesh, rows: PyTree, ids: Any) -> PyTree:
    return everywhere(mesh, jax.tree.map(lambda leaf: leaf[ids], rows))


def take(mesh: Mesh | None, rows: PyTree, ids: Any) -> PyTree:
    """The states of some clients, from arrays over all of them; whole on every device."""
    if mesh is None:
        return jax.tree.map(lambda leaf: leaf[ids], rows)
    return _taken(mesh, rows, ids)


@partial(in_turn, static_argnums=0)
def _whole(mesh: Mesh, tree: PyTree) -> PyTree:
    return everywhere(mesh, tree)


def fetched(tree: PyTree) -> PyTree:
    """Arrays on the host; what is spread over several processes is gathered first."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            assert isinstance(leaf.sharding, NamedSharding)
            leaf = _whole(leaf.sharding.mesh, leaf)
        return np.asarray(leaf)

    return jax.tree.map(one, tree)


def put_data(mesh: Mesh | None, array: Any) -> Any:
    """A numpy array that nobody will change, on every device. All devices of a CPU read the same
    memory.
    """
    if mesh is None:
        return jnp.asarray(array)
    if memories(mesh) == 1:
        array = aligned(array)
    return jax.device_put(array, NamedSharding(mesh, EVERYWHERE), may_alias=True)


def aligned(array: Any) -> Any:
    """The array, or a copy of it that begins where a CPU device can take it as it is."""
    array = np.ascontiguousarray(array)
    if array.ctypes.data % ALIGNED == 0:
        return array
    room = np.empty(array.nbytes + ALIGNED, np.uint8)
    first = -room.ctypes.data % ALIGNED
    copy = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
