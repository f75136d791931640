"""Tables in files and folders, and as a source."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coterie.core.errors import InvalidInput
from coterie.data import from_folder, from_table, get_source
from tests.support.tables import columns, table


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (
        ("a.csv", b"x,y\n1,2\n1,2,3\n"),
        ("a.parquet", b"nothing"),
        ("a.npz", b"PK nothing"),
        ("a.csv.gz", b"\x1f\x8bxx"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=rf"the table '.*{name}' cannot be read: .+\.$"):
            from_table(tmp_path / name, client="x", target="y")
    with pytest.raises(InvalidInput, match=r"nowhere\.csv' does not exist"):
        from_table(tmp_path / "nowhere.csv", client="x", target="y")
    (tmp_path / "a.ods").write_bytes(b"")
    with pytest.raises(
        InvalidInput, match=r"a\.ods' is of an unknown kind; known: \.parquet, \.csv"
    ):
        from_table(tmp_path / "a.ods", client="x", target="y")
    with pytest.raises(InvalidInput, match="the table is of type int, but must be a path"):
        from_table(3, client="x", target="y")
    np.savez(tmp_path / "b.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(InvalidInput, match=r"have different lengths \(x: 3, y: 4\)"):
        from_table(tmp_path / "b.npz", client="x", target="y")
    (tmp_path / "empty.csv").write_text("site,heat,label\n")
    with pytest.raises(InvalidInput, match="the table has no rows"):
        from_table(tmp_path / "empty.csv", client="site", target="label")


def test_an_npz_with_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", x=np.array([{}, {}], object), y=np.zeros(2))
    with pytest.raises(InvalidInput, match="cannot be read"):
        from_table(tmp_path / "o.npz", client="x", target="y")


def test_a_folder_of_files_and_one_of_folders(tmp_path: Path) -> None:
    whole = columns()
    parts = {
        s: {
            k: [v for v, site in zip(vs, whole["site"], strict=True) if site == s]
            for k, vs in whole.items()
            if k != "site"
        }
        for s in set(whole["site"])
    }
    for site, part in parts.items():
        (tmp_path / "files").mkdir(exist_ok=True)
        pyarrow.csv.write_csv(pa.table(part), tmp_path / "files" / f"{site}.csv")
        (tmp_path / "folders" / site).mkdir(parents=True)
        pyarrow.parquet.write_table(
            pa.table(part).slice(0, 8), tmp_path / "folders" / site / "1.parquet"
        )
        pyarrow.parquet.write_table(
            pa.table(part).slice(8), tmp_path / "folders" / site / "2.parquet"
        )
    feds = [from_folder(tmp_path / kind, target="label") for kind in ("files", "folders")]
    feds.append(get_source("folder", {"path": str(tmp_path / "files"), "target": "label"}).load(0))
    for fed in feds:
        assert fed.facts["clients"] == ["site 0", "site 1", "site 2"]
        assert sum(s.sizes for s in fed.splits).tolist() == [20, 20, 20]
        np.testing.assert_allclose(fed.train.x, feds[0].train.x, rtol=1e-5, atol=1e-6)
    (tmp_path / "files" / "site 1.csv").write_text("heat,label\n1,yes\n")
    with pytest.raises(
        InvalidInput, match=r"site 1\.csv' lacks the column 'colour' that '.*site 0\.csv' has"
    ):
        from_folder(tmp_path / "files", target="label")
    (tmp_path / "folders" / "site 3").mkdir()
    with pytest.raises(InvalidInput, match="the folder of client 'site 3' holds no table"):
        from_folder(tmp_path / "folders", target="label")
    (tmp_path / "folders" / "loose.csv").write_text("a\n1\n")
    with pytest.raises(InvalidInput, match=r"holds both tables \(loose\.csv\) and folders"):
        from_folder(tmp_path / "folders", target="label")
    with pytest.raises(InvalidInput, match="does not exist"):
        from_folder(tmp_path / "nowhere", target="label")
    (tmp_path / "void").mkdir()
    with pytest.raises(InvalidInput, match="holds neither folders nor tables"):
        from_folder(tmp_path / "void", target="label")


def test_as_a_source(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(table(), tmp_path / "t.csv")
    options = {
        "path": str(tmp_path / "t.csv"),
        "client": "site",
        "target": "label",
        "drop": "heat, on",
        "downsample": 0.5,
    }
    fed = get_source("table", options).load(4)
    assert fed.name == "t"
    assert fed.facts["features"] == ["count", "colour=blue", "colour=green", "colour=red"]
    assert len(fed.facts["downsampled"]) == 2
    with pytest.raises(InvalidInput, match="table lacks the option 'client'"):
        get_source("table", {"path": "x", "target": "y"})


def test_ten_thousand_rows_of_561_columns_load_in_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(10_299, 561)).astype(np.float32)
    wide = pa.table(
        {f"f{i}": values[:, i] for i in range(561)}
        | {"site": rng.integers(0, 30, len(values)), "label": rng.integers(0, 6, len(values))}
    )
    pyarrow.csv.write_csv(wide, tmp_path / "wide.csv")
    begin = time.perf_counter()
    fed = from_table(tmp_path / "wide.csv", client="site", target="label")
    assert time.perf_counter() - begin < 10
    assert fed.input_shape == (561,)
    assert sum(len(s) for s in fed.splits) == 10_299
