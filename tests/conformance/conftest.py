"""All that is asked of one method runs in one go, whichever file asks: its programs are then compiled once and not once per file."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def method_of(item: pytest.Item) -> str:
    """The method that a test is about, by its parameter; empty for tests that are about several."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    label = params.get("name", params.get("label", ""))
    return str(label).split(",")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = [i for i, item in enumerate(items) if HERE in item.path.parents]
    ordered = sorted((items[i] for i in places), key=method_of)
    for i, item in zip(places, ordered, strict=True):
        items[i] = item
