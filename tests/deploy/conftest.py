"""A federation of three, and one of them as real processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie import Federation, load
from coterie.deploy.plan import Plan
from tests.support.hub_lab import NAMES, Lab


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=len(NAMES))


@pytest.fixture
def hub_lab(tmp_path: Path, fed: Federation) -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def make(*plans: Plan, fed: Federation = fed) -> Lab:
        made.append(Lab(tmp_path, fed, *plans))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up network nobody pulls the plug: files need not reach the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
