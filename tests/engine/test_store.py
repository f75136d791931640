"""Rows of bytes: packed and unpacked to the bit; untouched clients take no room and have the
initial state.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.engine.store import DeviceStore, HostStore, RowFormat, make_store


class Memory(NamedTuple):
    theta: Any
    w: Any


INITIALS = {
    "float32": Vector({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32(7)}),
    "float64": {"w": np.linspace(0, 1, 5)},
    "mixed": Memory(
        Vector({"w": np.ones(3, np.float32)}),
        (np.array([2, 3], np.int32), np.float64(0.1), np.array([True, False])),
    ),
    "nothing": (),
    "optional": Memory(Vector({"w": np.ones(3, np.float32)}), None),
    "empty leaf": {"a": np.zeros((0, 3), np.float32), "b": np.ones(2, np.float32)},
}


def rows(initial: Any, count: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (rng.standard_normal((count, *np.shape(leaf))) * 50).astype(
            np.asarray(leaf).dtype
        ),
        initial,
    )


def same(a: Any, b: Any) -> bool:
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    return all(
        np.asarray(x).dtype == np.asarray(y).dtype
        and np.shape(x) == np.shape(y)
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in pairs
    )


@pytest.mark.parametrize("label", INITIALS)
def test_unpack_is_the_inverse_of_pack(label: str) -> None:
    initial = INITIALS[label]
    format_ = RowFormat(initial)
    assert format_.bytes == sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(initial))
    if format_.bytes:
        stacked = rows(initial, 4)
        packed = format_.pack(stacked)
        assert packed.shape == (4, format_.bytes)
        assert packed.dtype == np.uint8
        assert same(format_.unpack(packed), stacked)
        assert same(
            format_.unpack(format_.initial_row()[None]),
            jax.tree.map(lambda leaf: np.asarray(leaf)[None], initial),
        )


@settings(max_examples=40, deadline=None)
@given(
    leaves=st.lists(
        st.one_of(
            arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=3)),
            arrays(np.float64, array_shapes(min_dims=0, max_dims=2, max_side=3)),
            arrays(np.int16, (3,)),
        ),
        min_size=1,
        max_size=4,
    ),
    count=st.integers(1, 4),
)
def test_any_state_survives_to_the_bit(leaves: list[Any], count: int) -> None:
    format_ = RowFormat(leaves)
    stacked = [np.stack([leaf] * count) for leaf in leaves]
    assert same(format_.unpack(format_.pack(stacked)), stacked)


@pytest.mark.parametrize("kind", ["device", "host", "file"])
@pytest.mark.parametrize("label", INITIALS)
def test_untouched_rows_are_the_initial_one_and_loaded_rows_come_back(
    kind: str, label: str, tmp_path: Path
) -> None:
    with jax.enable_x64(True):
        initial = jax.tree.map(jnp.asarray, INITIALS[label])
        store = make_store(kind, 7, initial, tmp_path / "rows")
        assert store.kind == kind
        everyone = store.gather(np.arange(7))
        assert same(everyone, jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 7), initial))
        if not store.format.bytes:
            assert store.packed(np.array([1, 2])).shape == (2, 0)
            return
        new = rows(INITIALS[label], 3)
        store.load(np.array([5, 0, 2]), store.format.pack(new))
        assert same(store.gather(np.array([5, 0, 2])), new)
        assert same(store.gather(np.array([2, 2])), jax.tree.map(lambda leaf: leaf[[2, 2]], new))
        assert same(
            store.gather(np.array([1, 6])),
            jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2), initial),
        )
        np.testing.assert_array_equal(
            store.packed(np.array([0, 1])),
            np.stack([store.format.pack(new)[1], store.format.initial_row()]),
        )


def test_reading_does_not_write() -> None:
    store = HostStore(4, {"w": np.ones(3, np.float32)})
    got = store.gather(np.arange(4))
    got["w"][:] = 9
    store.packed(np.arange(4))[:] = 9
    assert (store.gather(np.arange(4))["w"] == 1).all()


def test_room_follows_the_clients_that_trained(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    store = make_store("file", 200_000, {"w": np.ones(1000, np.float32)}, path)
    store.scatter(np.array([3, 150_000]), {"w": np.full((2, 1000), 5, np.float32)})
    store.scatter(np.array([3, 7]), {"w": np.full((2, 1000), 6, np.float32)})
    assert path.stat().st_size == 3 * 4000
    for client, value in ((3, 6), (150_000, 5), (7, 6), (150_001, 1)):
        assert (store.gather(np.array([client]))["w"] == value).all(), client


def test_memory_follows_the_clients_that_trained() -> None:
    """Huge pages would make 2 MB resident for every row."""
    resident = lambda: (
        int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not tell what is resident")
    store = make_store("host", 400_000, {"w": np.ones(1000, np.float32)})
    before = resident()
    for k in range(0, 400_000, 400):
        store.scatter(np.array([k]), {"w": np.full((1, 1000), k, np.float32)})
    assert resident() - before < 50 << 20, "1,000 rows of 4 kB, scattered over 1.6 GB"
    assert (store.gather(np.array([800]))["w"] == 800).all()


def test_a_file_store_needs_a_place_that_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        make_store("file", 3, {"w": np.ones(2)}, tmp_path / "no such folder" / "rows").gather(
            np.arange(3)
        )


def test_the_device_store_keeps_arrays_on_the_device() -> None:
    store = make_store("device", 3, Vector({"w": jnp.ones(2)}))
    assert isinstance(store, DeviceStore)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(store.gather(np.array([0]))))
