"""What is there on Linux and not on Windows is not needed to import coterie.

Nothing of coterie was ever run on Windows; this keeps what is known to stop it there out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = Path(__file__).parents[1] / "src" / "coterie"
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}

# Modules of coterie are imported in a process that has no module, function or signal of POSIX's; of
# other people's code, only what coterie asks for itself is kept away.
CHECK = """
import builtins, importlib, os, pkgutil, signal, sys

POSIX_ONLY = set(sys.argv[1].split(","))
real = builtins.__import__

def without(name, globals=None, *rest, **more):
    asking = (globals or {}).get("__name__") or ""
    if name.split(".")[0] in POSIX_ONLY and asking.split(".")[0] == "coterie":
        raise ImportError(f"{asking} asks for {name}, which Windows has not")
    return real(name, globals, *rest, **more)

import jax, optuna  # they may use what they like
builtins.__import__ = without
for module, names in {
    os: ("killpg", "getuid", "getpgid", "setsid", "sched_setaffinity", "sched_getaffinity"),
    signal: ("SIGKILL", "SIGUSR1", "SIGALRM", "pthread_kill"),
}.items():
    for name in names:
        delattr(module, name)

import coterie

failed, count = [], 0
for found in pkgutil.walk_packages(coterie.__path__, "coterie."):
    if found.name == "coterie.__main__" or found.name.startswith("coterie.deploy.flower"):
        continue
    try:
        importlib.import_module(found.name)
        count += 1
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] == "coterie":
            failed.append(f"{found.name}: {error}")
    except (ImportError, AttributeError) as error:
        failed.append(f"{found.name}: {error}")
assert count > 300, count
sys.exit("; ".join(failed) or 0)
"""


def test_everything_can_be_imported_without_posix() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHECK, ",".join(sorted(POSIX_ONLY))], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


# These go without where it is missing, or are for tests on POSIX systems alone.
GUARDED = {"deploy/zenoh/gate.py": {"resource"}, "deploy/chaos/struck.py": {"resource"}}


def asked_for(tree: ast.AST) -> set[str]:
    """The modules that are imported anywhere in a file, inside functions too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_nothing_imports_posix_modules_later_either() -> None:
    found = {
        path.relative_to(ROOMS).as_posix(): posix
        for path in ROOMS.rglob("*.py")
        if (posix := asked_for(ast.parse(path.read_text(encoding="utf-8"))) & POSIX_ONLY)
    }
    assert found == GUARDED


def test_processes_are_not_bound_to_cores_where_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows has no affinity and refuses `preexec_fn`."""
    from coterie.runs import launch

    asked: dict[str, object] = {}
    monkeypatch.setattr(launch, "cores_of", lambda index, processes: [])
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **given: asked.update(given))
    launch._start(["run", "x.toml"], 0, 2, "127.0.0.1:1")
    assert asked["preexec_fn"] is None
