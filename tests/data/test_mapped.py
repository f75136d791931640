"""A federation in files: the same data, and not read before it is looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.core import pages
from coterie.core.errors import InvalidInput
from coterie.data.digest import hash_federation
from coterie.data.federation import Federation
from coterie.data.mapped import load_mapped, save_mapped


def test_what_is_saved_comes_back_mapped(ragged: Federation, tmp_path: Path) -> None:
    save_mapped(ragged, tmp_path / "fed")
    found = load_mapped(tmp_path / "fed")
    assert isinstance(found.train.x, np.memmap)
    assert hash_federation(found) == hash_federation(ragged)


def test_another_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no federation as save_mapped writes it"):
        load_mapped(tmp_path)


def test_a_federation_is_not_written_over(ragged: Federation, tmp_path: Path) -> None:
    save_mapped(ragged, tmp_path / "fed")
    with pytest.raises(InvalidInput, match="holds a federation already"):
        save_mapped(ragged, tmp_path / "fed")


def test_rows_are_read_from_the_file(tmp_path: Path) -> None:
    array = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.save(tmp_path / "a.npy", array)
    file = pages.in_file(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert file is not None
    out = np.zeros((6, 3), np.float32)
    file.read(np.array([2, 4, 17]), np.array([2, 1, 3]), out)
    np.testing.assert_array_equal(out, array[[2, 3, 4, 17, 18, 19]])
    part = np.load(tmp_path / "a.npy", mmap_mode="r")[4:]
    assert pages.in_file(part) is None, "where it begins in the file is not known"
    assert pages.in_file(array) is None
