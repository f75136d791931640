"""What goes over the wire has not changed: the same messages, byte for byte, as were recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import pinned, wire

RECORD = json.loads(Path(wire.__file__).with_suffix(".json").read_text())
SAME_BITS = pinned.machine() == RECORD["platform"] and not os.environ.get("COTERIE_TEST_OPTIMISE")


@pytest.mark.parametrize("case", wire.CASES)
def test_the_wire_is_as_it_was(case: str, tmp_path: Path) -> None:
    """On another machine numbers are rounded in another way; envelopes and lengths stay."""
    found = [list(message) for message in wire.recorded(case, tmp_path)]
    if SAME_BITS:
        assert found == RECORD[case]
    form = lambda run: [(way, text, [len(f) for f in frames]) for way, text, frames in run]
    assert form(found) == form(RECORD[case])
