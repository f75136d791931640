"""Published formats, and files that are damaged, cut short or hostile."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data import cache, cifar10, emnist, get_source, har, idx, mnist
from coterie.data.files import read_bytes


def idx_bytes(a: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{a.ndim}i", 0, 0, 8, a.ndim, *a.shape) + a.astype(np.uint8).tobytes()


def test_idx_plain_and_gz(tmp_path: Path) -> None:
    a = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx_bytes(a))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx_bytes(a)))
    np.testing.assert_array_equal(idx.read_idx(tmp_path / "plain"), a)
    np.testing.assert_array_equal(idx.read_idx(tmp_path / "packed.gz"), a)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:6], lambda b: b"PK" + b[2:], lambda b: b""],
)
def test_damaged_idx_is_refused(tmp_path: Path, damage: object) -> None:
    (tmp_path / "f").write_bytes(damage(idx_bytes(np.zeros((2, 3)))))  # type: ignore[operator]
    with pytest.raises(
        InvalidInput, match=r"is corrupt or cut short .*; delete it and get it again"
    ):
        idx.read_idx(tmp_path / "f")


def test_cut_or_altered_gz_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(np.random.default_rng(0).bytes(5000)))
    (tmp_path / "cut.gz").write_bytes(packed[:-2000])
    packed[-6] ^= 1  # the checksum at its end
    (tmp_path / "altered.gz").write_bytes(packed)
    for name in ("cut.gz", "altered.gz"):
        with pytest.raises(InvalidInput, match=f"{name} is corrupt or cut short"):
            read_bytes(tmp_path / name)


def write_mnist(folder: Path, counts: tuple[int, int], classes: int = 10) -> None:
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True)
    for name, count in zip(("train", "t10k"), counts, strict=True):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            idx_bytes(rng.integers(0, 256, (count, 28, 28)))
        )
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(count) % classes))


def test_small_mnist_like_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist, "COUNTS", (400, 100))
    write_mnist(tmp_path / "mnist", (400, 100))
    fed = get_source(
        "mnist", {"data_dir": str(tmp_path), "clients": 10, "split": "labels", "download": False}
    ).load(0)
    assert fed.clients == 10
    assert fed.input_shape == (784,)
    assert (fed.label_counts() > 0).sum(1).tolist() == [2] * 10
    # Zero mean and unit variance on the training rows, and there only.
    np.testing.assert_allclose(fed.train.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(fed.train.x.std(0), 1, atol=1e-4)
    assert np.abs(fed.test.x.mean(0)).max() > 0.05
    image = get_source(
        "mnist",
        {
            "data_dir": str(tmp_path),
            "clients": 10,
            "split": "iid",
            "shape": "image",
            "standardise": False,
        },
    ).load(0)
    assert image.input_shape == (28, 28, 1)
    assert image.train.x.min() >= 0
    assert 0.9 < image.train.x.max() <= 1


def test_other_counts_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", (400, 100))
    with pytest.raises(
        InvalidInput,
        match=r"MNIST has 60,000 pictures of 28×28 there; they are not the published files",
    ):
        get_source("mnist", {"data_dir": str(tmp_path)}).load(0)


def test_mnist_in_place_of_fashion_mnist_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist, "COUNTS", (404, 100))
    write_mnist(tmp_path / "own", (404, 100))
    with pytest.raises(InvalidInput, match="classes of different sizes"):
        get_source("fashion-mnist", {"data_dir": str(tmp_path / "own")}).load(0)


def test_emnist_stands_upright(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(emnist.COUNTS, "balanced", (470, 94))
    rng = np.random.default_rng(1)
    (tmp_path / "emnist").mkdir()
    images = {
        "train": rng.integers(0, 256, (470, 28, 28)),
        "test": rng.integers(0, 256, (94, 28, 28)),
    }
    for part, x in images.items():
        (tmp_path / "emnist" / f"emnist-balanced-{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(idx_bytes(x), 1)
        )
        (tmp_path / "emnist" / f"emnist-balanced-{part}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(idx_bytes(np.arange(len(x)) % 47))
        )
    source = get_source(
        "emnist",
        {
            "variant": "balanced",
            "data_dir": str(tmp_path),
            "clients": 10,
            "labels": 5,
            "mean_size": 20,
        },
    )
    x, y = source.pictures()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(x[3, :, :, 0], images["train"][3].T)
    np.testing.assert_array_equal(x[470, :, :, 0], images["test"][0].T)
    assert y.max() == 46
    fed = source.load(0)
    assert fed.classes == 47
    assert fed.facts["labels"][36:38] == ["a", "b"]
    assert ((fed.label_counts() > 0).sum(1) <= 5).all()
    assert abs(sum(len(s) for s in fed.splits) - 200) <= 10
    with pytest.raises(
        InvalidInput, match=r"EMNIST \(byclass\) is not on this machine .*nist\.gov"
    ):
        get_source("emnist", {"download": False}).load(0)


# ---- CIFAR-10 ------------------------------------------------------------------------------------


def batch_bytes(n: int, *, seed: int = 0, **changes: object) -> bytes:
    """A batch as Python 2 wrote it: byte strings as keys, an array of bytes, a list of ints."""
    rng = np.random.default_rng(seed)
    batch = {
        b"batch_label": b"one",
        b"labels": rng.integers(0, 10, n).tolist(),
        b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
    }
    batch |= {k.encode(): v for k, v in changes.items()}
    return python2(batch)


def python2(value: object) -> bytes:
    """Protocol 2 with bytes written as Python 2 strings (opcodes SHORT_BINSTRING and BINSTRING),
    which Python 3 does not write by itself.
    """

    class Writer(pickle._Pickler):  # type: ignore[name-defined]
        dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

        def save_bytes(self, data: bytes) -> None:
            self.write(
                b"U" + bytes([len(data)]) + data
                if len(data) < 256
                else b"T" + struct.pack("<i", len(data)) + data
            )
            self.memoize(data)

        dispatch[bytes] = save_bytes

    out = io.BytesIO()
    Writer(out, protocol=2).dump(value)
    return out.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def test_cifar_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "PER_BATCH", 50)
    folder = tmp_path / "cifar10" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i, name in enumerate(cifar10.BATCHES):
        (folder / f"{name}.gz").write_bytes(gzip.compress(batch_bytes(50, seed=i)))
    fed = get_source(
        "cifar10", {"data_dir": str(tmp_path), "split": "iid", "clients": 6, "standardise": False}
    ).load(0)
    assert fed.input_shape == (32, 32, 3)
    assert sum(len(s) for s in fed.splits) == 300
    # Channels come one after the other in the file; here the last axis is the colour.
    x, _ = cifar10.read_batch(folder / "data_batch_1.gz")
    pictures = np.concatenate([s.x for s in fed.splits])
    first = x[0].reshape(3, 32, 32)[:, 4, 7] / np.float32(255)
    assert (np.abs(pictures[:, 4, 7, :] - first).max(1) < 1e-6).any()
    (folder / "data_batch_3.gz").unlink()
    with pytest.raises(InvalidInput, match="CIFAR-10 is not on this machine"):
        get_source("cifar10", {"data_dir": str(tmp_path), "download": False}).load(0)
    some = get_source(
        "cifar10", {"data_dir": str(tmp_path), "partial": True, "split": "iid", "clients": 5}
    ).load(0)
    assert sum(len(s) for s in some.splits) == 250


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["EVIL"],)


def test_a_hostile_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "was here"
    monkeypatch.setenv("EVIL", str(target))
    hostile = pickle.dumps(Evil(), protocol=2)
    (tmp_path / "data_batch_1").write_bytes(hostile)
    with pytest.raises(InvalidInput, match=r"is corrupt .*it asks for (posix|nt|os)\.mkdir"):
        cifar10.read_batch(tmp_path / "data_batch_1")
    assert not target.exists()
    pickle.loads(hostile)  # the same bytes do run when plainly unpickled
    assert target.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda: batch_bytes(40), "it is not a batch of 50 pictures"),
        (lambda: batch_bytes(50, labels=[10] * 50), "its labels are not numbers from 0 to 9"),
        (lambda: batch_bytes(50, labels=["a"] * 50), "its labels are not numbers from 0 to 9"),
        (lambda: batch_bytes(50)[:-1000], "is corrupt or cut short"),
        (lambda: b"hello", "is corrupt or cut short"),
        (lambda: pickle.dumps([1, 2]), "it is not a batch"),
    ],
)
def test_damaged_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object, why: str
) -> None:
    monkeypatch.setattr(cifar10, "PER_BATCH", 50)
    (tmp_path / "b").write_bytes(content())  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=why):
        cifar10.read_batch(tmp_path / "b")


# ---- HAR and Vehicle -----------------------------------------------------------------------------


def write_har(folder: Path, rows: dict[str, int]) -> None:
    rng = np.random.default_rng(2)
    for part, n in rows.items():
        (folder / part).mkdir(parents=True)
        np.savetxt(folder / part / f"X_{part}.txt", rng.uniform(-1, 1, (n, 561)), fmt="%16.7e")
        np.savetxt(folder / part / f"y_{part}.txt", 1 + np.arange(n) % 6, fmt="%d")
        np.savetxt(
            folder / part / f"subject_{part}.txt",
            1 + np.arange(n) % (21 if part == "train" else 30),
            fmt="%d",
        )


def test_har_has_one_client_per_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(har, "ROWS", {"train": 63, "test": 30})
    folder = tmp_path / "UCI HAR Dataset"
    write_har(folder, har.ROWS)
    fed = get_source("har", {"data_dir": str(tmp_path)}).load(0)
    assert fed.clients == 30
    assert fed.facts["clients"][:3] == ["subject 1", "subject 2", "subject 3"]
    assert sum(s.sizes for s in fed.splits).tolist() == [4] * 21 + [1] * 9
    # Whoever has one sample trains on it and has no test data: said, and left out of means.
    assert fed.facts["no_test"] == list(range(21, 30))
    (folder / "train" / "y_train.txt").write_text("7\n" * 63)
    with pytest.raises(InvalidInput, match=r"y_train\.txt is corrupt .*not from 1 to 6"):
        get_source("har", {"data_dir": str(tmp_path)}).load(0)
    (folder / "train" / "y_train.txt").write_text("1\n" * 62)
    with pytest.raises(InvalidInput, match="62 rows of 1 numbers instead of 63 of 1"):
        get_source("har", {"data_dir": str(tmp_path)}).load(0)
    (folder / "train" / "y_train.txt").write_text("one\n" * 63)
    with pytest.raises(InvalidInput, match=r"y_train\.txt is corrupt"):
        get_source("har", {"data_dir": str(tmp_path)}).load(0)


def test_vehicle_from_the_authors_folders(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for run in ("aav3", "dw4"):
        for sensor in (1, 2, 11):
            place = tmp_path / "vehicle" / run / f"s{sensor}"
            place.mkdir(parents=True)
            for kind in ("acoustic", "seismic"):
                np.savetxt(
                    place / f"{run}_{kind}_feat.txt",
                    rng.normal(size=(8, 52)) + 100 * (kind == "seismic"),
                )
    fed = get_source("vehicle", {"data_dir": str(tmp_path), "standardise": False}).load(0)
    assert fed.clients == 3
    assert fed.facts["clients"] == ["sensor 1", "sensor 2", "sensor 11"]
    assert fed.facts["labels"] == ["DW", "AAV"]
    assert sum(s.sizes for s in fed.splits).tolist() == [16, 16, 16]
    assert fed.train.x[:, :50].max() < 50 < fed.train.x[:, 50:].min()
    (tmp_path / "vehicle" / "aav3" / "s1" / "aav3_seismic_feat.txt").write_text("1 2 3\n")
    with pytest.raises(InvalidInput, match="3 numbers instead of at least 50"):
        get_source("vehicle", {"data_dir": str(tmp_path)}).load(0)


def test_vehicle_from_mat_json_and_npz_agree(tmp_path: Path) -> None:
    from scipy.io import savemat

    rng = np.random.default_rng(4)
    xs = [rng.normal(size=(n, 100)).astype(np.float32) for n in (9, 12)]
    ys = [np.where(rng.random(len(x)) < 0.5, -1, 1) for x in xs]
    cells_x, cells_y = np.empty((2, 1), object), np.empty((2, 1), object)
    for k in range(2):
        cells_x[k, 0], cells_y[k, 0] = xs[k], ys[k][:, None]
    (tmp_path / "mat").mkdir()
    savemat(tmp_path / "mat" / "vehicle.mat", {"X": cells_x, "Y": cells_y})
    (tmp_path / "json").mkdir()
    users = {f"f_{k:05d}": {"x": xs[k].tolist(), "y": [[int(v)] for v in ys[k]]} for k in range(2)}
    (tmp_path / "json" / "mytrain.json").write_text(
        json.dumps({"users": list(users), "user_data": users, "num_samples": [9, 12]})
    )
    (tmp_path / "npz").mkdir()
    np.savez(
        tmp_path / "npz" / "vehicle_part.npz",
        X=np.concatenate(xs),
        y=np.concatenate(ys),
        client=[0] * 9 + [1] * 12,
    )
    feds = [
        get_source("vehicle", {"data_dir": str(tmp_path / form)}).load(5)
        for form in ("mat", "json", "npz")
    ]
    for fed in feds:
        assert sum(s.sizes for s in fed.splits).tolist() == [9, 12]
        np.testing.assert_array_equal(fed.train.x, feds[0].train.x)
        np.testing.assert_array_equal(fed.train.y, feds[0].train.y)
    (tmp_path / "json" / "mytrain.json").write_text('{"users": ["f_00000"]}')
    with pytest.raises(InvalidInput, match="it is not a LEAF file"):
        get_source("vehicle", {"data_dir": str(tmp_path / "json")}).load(0)
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidInput, match=r"Vehicle Sensor is not on this machine .*umass"):
        get_source("vehicle", {"data_dir": str(tmp_path / "none")}).load(0)


# ---- the cache of parsed data --------------------------------------------------------------------


def test_parsed_once_until_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"1")
    calls = []

    def parse() -> cache.Arrays:
        calls.append(1)
        return {"a": np.frombuffer(file.read_bytes(), np.uint8)}

    first = cache.cached("toy", [file], parse)
    again = cache.cached("toy", [file], parse)
    assert len(calls) == 1
    np.testing.assert_array_equal(first["a"], again["a"])
    file.write_bytes(b"22")
    np.testing.assert_array_equal(
        cache.cached("toy", [file], parse)["a"], np.frombuffer(b"22", np.uint8)
    )
    assert len(calls) == 2


def test_a_damaged_entry_is_parsed_again(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"1")
    cache.cached("toy", [file], lambda: {"a": np.arange(100)})
    entry = cache.entry("toy", [file])
    entry.write_bytes(entry.read_bytes()[:-60])
    np.testing.assert_array_equal(
        cache.cached("toy", [file], lambda: {"a": np.arange(3)})["a"], np.arange(3)
    )
    np.testing.assert_array_equal(
        cache.cached("toy", [file], lambda: {"a": np.arange(9)})["a"], np.arange(3)
    )


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"1")
    monkeypatch.setenv("COTERIE_CACHE", str(file / "below a file"))
    np.testing.assert_array_equal(
        cache.cached("toy", [file], lambda: {"a": np.arange(3)})["a"], np.arange(3)
    )
