"""Arrays from files that others wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.core.files import read_arrays


def test_arrays_come_back(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.arange(3), b=np.eye(2))
    np.save(tmp_path / "one.npy", np.arange(4))
    assert set(read_arrays(tmp_path / "two.npz", "the file")) == {"a", "b"}
    assert read_arrays(tmp_path / "one.npy", "the file")[""].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "junk",
    [b"", b"PK\x03\x04junk", b"\x93NUMPYjunk", b"hello"],
    ids=["empty", "zip", "npy", "text"],
)
def test_junk_is_one_sentence(junk: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(junk)
    with pytest.raises(InvalidInput, match=r"^the file '.*file.npz' cannot be read: .*\.$"):
        read_arrays(path, "the file")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "object.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_arrays(tmp_path / "object.npy", "the file")
