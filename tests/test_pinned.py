"""No bit of a result changes unnoticed: the digests of a dozen and more runs, for one platform.

tests/support/pinned.json was written by `python -m tests.support.pinned`; a change of it must be
explained by a defect that was mended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pinned import RUNS, machine

PINNED = json.loads((Path(__file__).parent / "support" / "pinned.json").read_text())
QUICK = ["lp-proj-1-liars", "fedu-delta"]

elsewhere = pytest.mark.skipif(
    machine() != PINNED["platform"], reason="bits are written down for another platform"
)


def digests(names: list[str]) -> dict[str, str]:
    """In a process of its own: with XLA's optimisations, as users run it."""
    root = Path(__file__).parent.parent
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pinned", *names],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=environment,
    )
    found: dict[str, str] = json.loads(done.stdout)["runs"]
    return found


def test_every_run_is_pinned() -> None:
    assert list(PINNED["runs"]) == list(RUNS)


@elsewhere
def test_a_few_runs_have_the_bits_they_had() -> None:
    assert digests(QUICK) == {name: PINNED["runs"][name] for name in QUICK}


@elsewhere
@pytest.mark.slow
def test_all_runs_have_the_bits_they_had() -> None:
    assert digests(list(RUNS)) == PINNED["runs"]
