"""Messages put aside and merged some coordinates at a time: the same bits, and what is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import Federation, load
from coterie.channel import PLAIN, get_channel
from coterie.coupling import merges
from coterie.deploy import hub_aside
from coterie.deploy.hub_aside import Aside, NoRoom, by_coordinate, needs
from coterie.deploy.setup import Setup
from coterie.methods.base import get_method
from tests.support.room import CLIENTS, Room, assert_same, make_plan


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as large."""
    monkeypatch.setattr(hub_aside, "MEMORY", 0)
    monkeypatch.setattr(hub_aside, "AT_ONCE", 1)


@pytest.mark.parametrize("kind", merges.BY_COORDINATE)
def test_some_coordinates_at_a_time_give_the_same_bits(
    kind: str, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order the messages come; pieces of 1,024 numbers, and a rest; also where there
    is no `os.preadv`, as on Windows.
    """
    monkeypatch.delattr(os, "preadv", raising=False)
    rng = np.random.default_rng(3)
    message = lambda: {"a": rng.standard_normal((50, 61)), "b": rng.standard_normal(7)}
    told = [jax.tree.map(lambda m: m.astype(np.float32), message()) for _ in range(5)]
    weights = jnp.array([3.0, 1.0, 250.0, 17.0, 4.0])
    aside = Aside(tmp_path, jax.tree.map(jnp.asarray, told[0]))
    for k in (4, 0, 2, 1, 3):
        aside.put(k, told[k])
    aside.put(0, told[0])  # asked again
    found = aside.merged(get_method("fedavg", {"merging": kind}), range(5), weights)  # type: ignore[arg-type]
    stacked = jax.tree.map(lambda *m: jnp.stack(m), *told)
    merge = jax.jit(lambda m, w: merges.robust_merge(merges.Settings(kind), None, m, w))
    for mine, whole in zip(*map(jax.tree.leaves, (found, merge(stacked, weights))), strict=True):
        np.testing.assert_array_equal(mine, whole)
    aside.clear()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "options", "training"),
    [
        ("fedavg", {"weighting": "samples"}, {}),
        pytest.param("fedavg", {"merging": "median"}, {}, marks=pytest.mark.slow),
        pytest.param("pfedme", {"beta": 0.7}, {"cohort": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_hub_that_puts_messages_aside_ends_as_one_that_does_not(
    method: str, options: dict[str, Any], training: dict[str, Any], fed: Federation, tmp_path: Path
) -> None:
    plan = make_plan(fed, method, PLAIN, options, **training)
    plain = Room(plan, fed, tmp_path / "plain").run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub_aside, "MEMORY", 0)
        said: list[str] = []
        room = Room(plan, fed, tmp_path / "aside")
        seen = []

        def again(room: Room) -> None:  # what was put aside is of no use to a hub that comes back
            seen.append((room.hub_folder / hub_aside.FILE).exists())
            (room.hub_folder / hub_aside.FILE).write_bytes(b"old")
            room.hub = type(room.hub)(plan, room.hub_folder, say=said.append)

        room.run(again)
    assert seen
    assert not any(seen)
    assert "are put aside on the disk" in said[0]
    states = [jax.tree.leaves(r.hub.kept.hub) for r in (room, plain)]
    for mine, whole in zip(*states, strict=True):
        np.testing.assert_array_equal(mine, whole)
    assert_same(room, fed)


def test_a_disk_without_room_stops_the_hub_and_not_the_client(tmp_path: Path) -> None:
    (tmp_path / hub_aside.FILE).mkdir()
    with pytest.raises(NoRoom, match=r"arrived.rows' cannot be written: .*; it takes 16 B for"):
        Aside(tmp_path, jnp.zeros(4)).put(0, jnp.zeros(4))


def test_what_is_needed_is_said_before_the_run(fed: Federation, small: None) -> None:
    def told(method: str, channel: Any = PLAIN, **options: Any) -> str:
        return needs(Setup(make_plan(fed, method, channel, options))) or ""

    assert "put aside" in told("fedavg")
    assert "merging 'krum' of fedavg looks at all of them at once: about 31.2 kB" in told(
        "fedavg", merging="krum"
    )
    assert "at all of them" in told("scaffold")
    assert "at all of them" in told("fedavg", get_channel("delta", {"share": 0.1, "down": True}))
    assert "keeps every client's message and what pulls it" in told("fedu")
    assert not by_coordinate(get_method("afl"))


def test_small_messages_stay_in_memory_and_nothing_is_said(fed: Federation) -> None:
    setup = Setup(make_plan(fed, "fedavg"))
    assert needs(setup) is None
    assert not hub_aside.puts_aside(setup)
