"""Closed forms need a network without framing."""

from __future__ import annotations

import pytest

from coterie.network import ENGINES


@pytest.fixture(autouse=True)
def _nothing_but_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed forms: no framing, no envelope."""
    monkeypatch.setitem(ENGINES, "zenoh", ENGINES["zenoh"]._replace(framing=1.0, envelope=0))
