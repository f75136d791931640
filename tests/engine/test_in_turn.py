"""Devices that wait for each other, and programs over several that several threads call."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.core.compilation import Compilations
from coterie.engine.in_turn import InTurn, compiling_first, in_turn
from coterie.engine.mesh import each_client, everywhere, mesh_of

SEVERAL = pytest.mark.skipif(jax.device_count() < 2, reason="there is one device")


def work(mesh: Any, x: Any, times: Any) -> Any:
    """Devices work apart and gather what they have, again and again."""

    def step(i: Any, x: Any) -> Any:
        x = each_client(mesh, lambda _, row: jnp.tanh(jnp.sin(row)).T, (), x)
        return x - everywhere(mesh, x).mean(0)

    return jax.lax.fori_loop(0, times, step, x)


@SEVERAL
@pytest.mark.parametrize("in_order", [True, False])
def test_a_thread_waits_for_what_another_began(in_order: bool) -> None:
    mesh, x = mesh_of(2), np.ones((4, 300, 300), np.float32)
    compiled = jax.jit(work, static_argnums=0)
    jax.block_until_ready(compiled(mesh, x, 1))
    begun: dict[str, Any] = {}
    over: list[bool] = []

    def program(told: Any, name: str) -> Any:
        over.extend(found.is_ready() for found in begun.values())
        begun[name] = compiled(mesh, x, 300)
        return begun[name]

    turned = InTurn(program)
    told = mesh if in_order else None  # over one device nobody waits
    turned(told, "first")
    other = threading.Thread(target=turned, args=(told, "second"))
    other.start()
    other.join(60)
    jax.block_until_ready(begun["second"])
    assert over == [in_order]


@SEVERAL
def test_what_is_compiled_first_is_compiled_once() -> None:
    mesh, x = mesh_of(2), np.ones((4, 5, 5), np.float32)
    program = in_turn(lambda mesh, x: work(mesh, x, 2) + 3, static_argnums=0)
    with Compilations() as first, compiling_first():
        assert np.isfinite(np.asarray(program(mesh, x))).all()
    with Compilations() as then:
        program(mesh, x)
    assert (first.count, then.count) == (1, 0)


PROGRAM = """
import os, sys
from coterie.engine.mesh import mesh_of
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
steps = int(sys.argv[1])

def work(x):
    mine = jnp.where(jax.lax.axis_index("clients") == 0, 1, steps)
    y = jax.lax.fori_loop(0, mine, lambda i, y: jnp.tanh(y @ y * 0.01), x[0])
    return jax.lax.all_gather(y, "clients")

over = jax.shard_map(work, mesh=mesh_of(2), in_specs=P("clients"), out_specs=P(), check_vma=False)
jax.block_until_ready(jax.jit(over)(np.ones((2, 150, 150), np.float32)))
print(os.environ["XLA_FLAGS"])
"""
WARNED = "--xla_cpu_collective_call_warn_stuck_timeout_seconds"
ENDED = "--xla_cpu_collective_call_terminate_timeout_seconds"


def unequal(steps: int, flags: str) -> subprocess.CompletedProcess[str]:
    """One device does so much more than the other."""
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, "-c", PROGRAM, str(steps)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_devices_are_patient_unless_told_otherwise() -> None:
    """This version of JAX knows the flags; if it does not, `mesh.KNOWN` is to be looked at."""
    done = unequal(1, "")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{WARNED}=600", f"{ENDED}=604800"]
    done = unequal(1, f"{ENDED}=50")
    assert done.stdout.split() == [f"{ENDED}=50", f"{WARNED}=600"]


@pytest.mark.slow
def test_a_device_that_works_for_a_minute_longer_is_waited_for() -> None:
    """With XLA's own patience, 40 s after the first 20 s, the process ended."""
    ended = unequal(40_000, f"{WARNED}=1 {ENDED}=1")
    assert ended.returncode == -6
    assert "may be stuck" in ended.stderr
    done = unequal(1_400_000, "")
    assert done.returncode == 0, done.stderr
