"""The environment of a run: versions, the machine, the devices that its clients are spread over."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coterie.core import plugins
from coterie.engine.simulator import Simulator


def environment(simulator: Simulator | None = None) -> dict[str, Any]:
    """What the numbers were computed with."""
    import jaxlib.version

    import coterie

    return {
        "coterie": coterie.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "devices": [str(d) for d in _devices(simulator)],
        "plugins": plugins.installed(),
    }


def _devices(simulator: Simulator | None) -> Iterable[Any]:
    """The devices that the clients of a run are spread over; without one those that there are."""
    if simulator is None:
        return jax.devices()
    mesh = simulator.spec.mesh
    return jax.devices()[:1] if mesh is None else mesh.devices.flat


def changed_since(folder: Path, simulator: Simulator) -> str:
    """What of the environment that bits depend on is not as it was when the run began, in words;
    empty if nothing is.
    """
    try:
        then = json.loads((folder / "environment.json").read_text())
    except (OSError, ValueError):
        return ""
    now = environment(simulator)
    return ", ".join(
        f"{key} {then.get(key)} (now {now[key]})"
        for key in ("coterie", "jax", "jaxlib", "processor", "devices")
        if then.get(key) != now[key]
    )
