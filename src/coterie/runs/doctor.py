"""What a machine has for coterie: versions, devices, extras, caches, data sets, ports."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.places import cache_root

EXTRAS = {
    "torch": ("torch",),
    "tune": ("optuna",),
    "cluster": ("distributed",),
    "flower": ("flwr",),
    "deploy": ("zenoh", "cryptography"),
    "onnx": ("onnx",),
    "sklearn": ("sklearn",),
    "excel": ("openpyxl",),
    "pandas": ("pandas",),
    "track": ("tensorboard", "mlflow", "wandb"),
    "hf": ("datasets", "flwr_datasets"),
}
"""What each extra must make importable."""


class Finding(NamedTuple):
    """Something that was looked at; `problem`, where it is one, is a sentence with a remedy."""

    what: str
    found: str
    problem: str = ""


def examine(ports: Mapping[str, int]) -> dict[str, list[Finding]]:
    """All that can be told without training anything, by section."""
    return {
        "environment": _environment(),
        "devices": _devices(),
        "extras": _extras(),
        "caches": _caches(),
        "data": _data(),
        "ports": [_port(what, number) for what, number in ports.items()],
    }


def _environment() -> list[Finding]:
    import coterie

    found = [
        Finding("coterie", f"{coterie.__version__} in {Path(coterie.__file__).parent}"),
        Finding("python", f"{platform.python_version()} ({sys.executable})"),
        Finding("platform", f"{platform.platform()}, {platform.machine()}"),
    ]
    return found + [Finding(name, _version(name)) for name in _needed()]


def _needed() -> list[str]:
    """The libraries that coterie needs, by its own metadata."""
    try:
        lines = requires("coterie") or []
    except PackageNotFoundError:  # a checkout that is not installed
        lines = ["jax", "jaxlib", "optax", "numpy", "scipy"]
    found = [re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line]
    return [name[0] for name in found if name is not None]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _devices() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = [Finding("cores", str(cores))]
    try:
        import jax

        devices = jax.devices()
    except Exception as error:  # a driver that does not fit, a plug-in that is half installed
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        remedy = "unset JAX_PLATFORMS, or install the extra that fits this machine"
        return [*found, Finding("jax", "cannot start", f"JAX finds no device ({why}); {remedy}.")]
    for device in devices:
        kind = getattr(device, "device_kind", device.platform)
        found.append(Finding(str(device), f"{device.platform}, {kind}"))
    if shutil.which("nvidia-smi") and all(d.platform == "cpu" for d in devices):
        remedy = "pip install 'coterie[cuda12]' or 'coterie[cuda13]'"
        found.append(Finding("nvidia", "not used", f"JAX does not see the NVIDIA card; {remedy}."))
    return found


def _extras() -> list[Finding]:
    found = []
    for name, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        told = f"no: pip install 'coterie[{name}]'" if missing else "yes"
        found.append(Finding(name, told))
    return found


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _caches() -> list[Finding]:
    root = cache_root()
    there = root
    while not there.exists():
        there = there.parent
    problem = ""
    if not os.access(there, os.W_OK):
        problem = f"the cache {str(root)!r} cannot be written; name another with COTERIE_CACHE."
    found = [Finding("folder", str(root), problem)]
    off = bool(os.environ.get("COTERIE_NO_CACHE"))
    for name, what in (("programs", "compiled programs"), ("parsed", "parsed data")):
        told = f"{_size(root / name) / 1e6:.1f} MB" if (root / name).is_dir() else "empty"
        if off and name == "programs":
            told += ", not used (COTERIE_NO_CACHE is set)"
        found.append(Finding(what, told))
    free = shutil.disk_usage(there).free / 1e9
    few = f"only {free:.1f} GB are free where the cache is." if free < 1 else ""
    return [*found, Finding("free", f"{free:.1f} GB", few)]


def _data() -> list[Finding]:
    from coterie.core.errors import InvalidInput
    from coterie.data import SOURCES
    from coterie.data.labelled import Prepared

    found = []
    named = os.environ.get("COTERIE_DATA")
    if named is not None:
        gone = not Path(named).expanduser().is_dir()
        problem = f"COTERIE_DATA is {named!r}, but there is no such folder." if gone else ""
        found.append(Finding("COTERIE_DATA", named, problem))
    for name, source in sorted(SOURCES.items()):
        needed = [d.default is dataclasses.MISSING for d in source.public().values()]
        if not issubclass(source, Prepared) or any(needed):
            continue
        try:
            place = source().found()
        except InvalidInput as error:
            found.append(Finding(name, "unreadable", str(error)))
            continue
        found.append(Finding(name, str(place) if place else "not on this machine"))
    return found


def _port(what: str, number: int) -> Finding:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", number))
        except OSError:
            return Finding(f"{number} ({what})", "taken; choose another with --port")
    return Finding(f"{number} ({what})", "free")


def as_plain(found: Mapping[str, list[Finding]]) -> dict[str, Any]:
    """For JSON: section → what → found; `problems` has the sentences."""
    made: dict[str, Any] = {
        section: {one.what: one.found for one in lines} for section, lines in found.items()
    }
    made["problems"] = [one.problem for lines in found.values() for one in lines if one.problem]
    return made
