"""Shared by all tests: one cache of compiled programs for all workers and runs, the small
federations that tests use, and the command line.
"""

from __future__ import annotations

import gc
import getpass
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path

# What is tested is what programs compute, not how fast: XLA's and LLVM's costly passes would double
# the time of the suite. Set COTERIE_TEST_OPTIMISE=1 to test the programs that users run.
if not os.environ.get("COTERIE_TEST_OPTIMISE"):
    cheap = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    if version("jaxlib").startswith(
        "0.10."
    ):  # XLA stops at flags that it does not know, and this one need not be there for ever
        cheap += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {cheap}".strip()

# Two devices, however many cores there are; problems as small as those of tests stay on one of them
# unless they ask for more (engine/mesh.py).
os.environ["JAX_NUM_CPU_DEVICES"] = "2"

import jax
import numpy as np
import pytest

from coterie import Federation
from coterie.core.compilation import use_cache
from tests.support.federations import blobs

# Tracing makes many objects and hardly a cycle, and looking for cycles through all that JAX holds
# took a tenth of the suite's time: look more rarely.
gc.set_threshold(100_000, 20, 20)

# Programs are shared between workers and runs. `Compilations` counts a program that is loaded from
# this cache like one that is compiled (test_compile_counts.py proves it), so counting tests mean
# the same with a cold and with a warm cache.
use_cache(
    Path(
        os.environ.get("COTERIE_TEST_CACHE")
        or Path(tempfile.gettempdir()) / f"coterie-tests-{getpass.getuser()}-jax-{jax.__version__}"
    )
)


EXPERIMENT = """
[data]
name = "digits"
clients = 5
[training]
rounds = 4
eval_every = 2
batch_size = 8
[method]
name = "fedu"
local_steps = 2
"""
Cli = Callable[..., tuple[int, str, str]]

MAPS = Path("/proc/self/maps")
_finished = count(1)


@pytest.fixture(autouse=True)
def _room_for_programs() -> Iterator[None]:
    """Every compiled program maps some memory, and Linux allows a process 65,530 maps: let old
    programs go in time.
    """
    yield
    if next(_finished) % 20 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()
        gc.collect()


def _method_of(item: pytest.Item) -> str:
    """The method that a test is about, by its parameter; empty for tests that are about several."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return str(params.get("name", params.get("label", ""))).split(",")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the conformance suite all that is asked of one method runs in one go, whichever file asks:
    its programs are then compiled once.
    """
    here = Path(__file__).parent / "conformance"
    places = [i for i, item in enumerate(items) if here in item.path.parents]
    ordered = sorted((items[i] for i in places), key=_method_of)
    for i, item in zip(places, ordered, strict=True):
        items[i] = item


@pytest.fixture(scope="session")
def ragged() -> Federation:
    """5 clients with 3 to 22 training samples, one without validation samples, one without test
    samples, one with more than a tile of them.
    """
    rng = np.random.default_rng(5)
    return Federation(
        "ragged",
        blobs(rng, [5, 14, 3, 22, 9], 4, 3),
        blobs(rng, [2, 0, 1, 3, 2], 4, 3),
        blobs(rng, [4, 5, 0, 6, 70], 4, 3),
        classes=3,
    )


@pytest.fixture(scope="session")
def wide() -> Federation:
    """10 small clients: enough that a ring is kept as a table of neighbours and not as a matrix."""
    rng = np.random.default_rng(6)
    sizes = [4, 7, 3, 5, 6, 4, 8, 3, 5, 4]
    return Federation(
        "wide",
        blobs(rng, sizes, 2, 2),
        blobs(rng, [1] * 10, 2, 2),
        blobs(rng, [3] * 10, 2, 2),
        classes=2,
    )


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Call the command line in an empty folder; gives exit code, output and errors."""
    from coterie.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_NO_CACHE", "1")
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
