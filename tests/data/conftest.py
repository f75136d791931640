"""Every test has a cache of its own and sees no data folder; those that need real data ask for
`real`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = os.environ.get("COTERIE_DATA")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("COTERIE_CACHE", str(cache))
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    return cache


@pytest.fixture(scope="session")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests on real data, so that each file is parsed once."""
    return tmp_path_factory.mktemp("parsed")


@pytest.fixture
def real(parsed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data sets, or the test is skipped."""
    if not REAL or not Path(REAL).is_dir():
        pytest.skip("COTERIE_DATA does not point to real data")
    monkeypatch.setenv("COTERIE_DATA", REAL)
    monkeypatch.setenv("COTERIE_CACHE", str(parsed))
    return Path(REAL)
