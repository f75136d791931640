"""CIFAR-100, FEMNIST, Shakespeare, MedMNIST and text of one's own, from small stand-ins of their
files; splits under the names that others use.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data import cifar100, from_arrays, get_source, medmnist, partition
from coterie.data.characters import ALPHABET, numbered, windows
from tests.data.test_data_readers import python2

RNG = np.random.default_rng(4)


def write_cifar100(folder: Path, counts: dict[str, int]) -> None:
    folder.mkdir(parents=True)
    for name, count in counts.items():
        batch = {
            b"data": RNG.integers(0, 256, (count, 3072), np.uint8),
            b"fine_labels": [i % 100 for i in range(count)],
            b"coarse_labels": [i % 20 for i in range(count)],
        }
        (folder / name).write_bytes(python2(batch))


def test_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": 500, "test": 100}
    monkeypatch.setattr(cifar100, "COUNTS", counts)
    write_cifar100(tmp_path / "cifar100/cifar-100-python", counts)
    options = {"data_dir": str(tmp_path), "clients": 5}
    fed = get_source("cifar100", options).load(0)
    assert (fed.input_shape, fed.classes) == ((32, 32, 3), 100)
    assert [len(np.flatnonzero(row)) <= 10 for row in fed.label_counts()] == [True] * 5
    coarse = get_source("cifar100", {**options, "level": "coarse", "split": "pat"}).load(0)
    assert coarse.classes == 20
    monkeypatch.setattr(cifar100, "COUNTS", {"train": 400, "test": 100})
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "parsed anew"))
    with pytest.raises(InvalidInput, match="it is not a batch of 400 pictures"):
        get_source("cifar100", options).load(0)


def leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    path.write_text(json.dumps({"users": list(users), "user_data": data}))


def test_femnist_has_one_client_per_writer(tmp_path: Path) -> None:
    def writer(count: int) -> tuple[list[Any], list[Any]]:
        return RNG.uniform(0, 1, (count, 784)).round(3).tolist(), [i % 62 for i in range(count)]

    leaf(tmp_path / "femnist/data/train/a.json", {"f1": writer(20), "f2": writer(5)})
    leaf(tmp_path / "femnist/data/test/a.json", {"f1": writer(4), "f3": writer(30)})
    source = get_source("femnist", {"data_dir": str(tmp_path), "shape": "image"})
    fed = source.load(0)
    assert fed.facts["clients"] == ["f1", "f3"]  # f2 has fewer than 10
    assert fed.input_shape == (28, 28, 1)
    assert [sum(s.sizes[k] for s in fed.splits) for k in range(2)] == [24, 30]
    assert source.found() == tmp_path / "femnist/data/train"  # type: ignore[attr-defined]
    one = get_source("femnist", {"data_dir": str(tmp_path), "most": 1}).load(0)
    assert (one.facts["clients"], one.input_shape) == (["f3"], (784,))


def test_shakespeare_has_one_client_per_role(tmp_path: Path) -> None:
    play = "Now is the winter of our discontent made glorious summer by this sun of York. " * 4
    x, y = [play[i : i + 80] for i in range(90)], [play[i + 80] for i in range(90)]
    leaf(tmp_path / "shakespeare/train.json", {"GLOUCESTER": (x, y), "PAGE": (x[:9], y[:9])})
    fed = get_source("shakespeare", {"data_dir": str(tmp_path)}).load(0)
    assert fed.facts["clients"] == ["GLOUCESTER"]
    assert (fed.input_shape, fed.classes) == ((80,), 80)
    for row, label in zip(fed.test.x, fed.test.y, strict=True):
        said = "".join(ALPHABET[int(c)] for c in row) + ALPHABET[label]
        assert said in play


def test_text_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("abc" * 40, encoding="utf-8")
    (tmp_path / "bob.txt").write_text("xyé" * 40, encoding="utf-8")
    (tmp_path / "few.txt").write_text("short", encoding="utf-8")
    options = {"path": str(tmp_path), "length": 5, "step": 1, "least": 50}
    with pytest.warns(UserWarning, match=r"few.txt has 0 samples, fewer than 50: left out"):
        fed = get_source("text", options).load(0)
    assert fed.facts["clients"] == ["ann", "bob"]
    assert {ALPHABET[c] for c in fed.train.client(1)[1]} == {"x", "y", " "}
    with pytest.raises(InvalidInput, match=r"text.path is '.*nowhere', but must be a folder"):
        get_source("text", {"path": str(tmp_path / "nowhere")}).load(0)
    with pytest.raises(InvalidInput, match=r"text.standardise is True, but characters"):
        get_source("text", {"path": "x", "standardise": True})


def test_windows_and_the_character_after_each() -> None:
    x, y = windows("abcdef", 3, 2)
    assert x.tolist() == [numbered("abc").tolist(), numbered("cde").tolist()]
    assert y.tolist() == numbered("df").tolist()
    assert len(windows("abc", 3, 1)[1]) == 0
    assert len(set(ALPHABET)) == len(ALPHABET) == 80


@pytest.mark.parametrize(
    ("name", "users", "why"),
    [
        ("femnist", {"f": ([[0.5] * 783], [0])}, "the pictures of 'f' are not 784 numbers"),
        ("femnist", {"f": ([[0.5] * 784], [62])}, "the labels of 'f' are not from 0 to 61"),
        ("shakespeare", {"s": (["too short"], ["x"])}, "'s' are not 80 characters"),
        ("shakespeare", {"s": (["a" * 80], [])}, "are not lists of one length"),
    ],
)
def test_what_is_not_the_set_is_refused(
    tmp_path: Path, name: str, users: dict[str, Any], why: str
) -> None:
    leaf(tmp_path / name / "x.json", users)
    with pytest.raises(InvalidInput, match=why):
        get_source(name, {"data_dir": str(tmp_path)}).load(0)
    (tmp_path / name / "x.json").write_text("{}")
    with pytest.raises(InvalidInput, match="it is not of LEAF's form"):
        get_source(name, {"data_dir": str(tmp_path)}).load(0)


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "cifar100", "medmnist"])
def test_where_to_put_the_files_is_said(tmp_path: Path, name: str) -> None:
    options = {"data_dir": str(tmp_path), "download": False}
    with pytest.raises(InvalidInput, match=rf"is not on this machine .* into {tmp_path}/{name}"):
        get_source(name, options).load(0)


def write_med(path: Path, channels: int) -> None:
    size = (4, 6) if channels == 1 else (4, 6, channels)
    arrays = {}
    for part, count in (("train", 60), ("val", 10), ("test", 20)):
        arrays[f"{part}_images"] = RNG.integers(0, 256, (count, *size), np.uint8)
        arrays[f"{part}_labels"] = (np.arange(count) % 3)[:, None]
    np.savez(path, **arrays)  # type: ignore[arg-type]


def test_medmnist_and_files_of_its_form(tmp_path: Path) -> None:
    (tmp_path / "medmnist").mkdir()
    write_med(tmp_path / "medmnist/bloodmnist.npz", 3)
    fed = get_source("medmnist", {"data_dir": str(tmp_path), "clients": 4, "minimum": 5}).load(0)
    assert (fed.input_shape, fed.classes, fed.clients) == ((4, 6, 3), 3, 4)
    assert sum(len(s) for s in fed.splits) == 90
    write_med(tmp_path / "mine.npz", 1)
    mine = {"path": str(tmp_path / "mine.npz"), "clients": 4, "minimum": 5}
    assert get_source("medmnist", mine).load(0).input_shape == (4, 6, 1)
    np.savez(tmp_path / "bad.npz", train_images=np.zeros((3, 2, 2)), train_labels=np.zeros(3))
    with pytest.raises(InvalidInput, match="train_images are not pictures of bytes"):
        medmnist.read_medmnist(tmp_path / "bad.npz")
    with pytest.raises(InvalidInput, match=r"medmnist.variant is 'pathmnist', but medmnist.path"):
        get_source("medmnist", {**mine, "variant": "pathmnist"})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("pathological", "labels"), ("pat", "labels"), ("dir", "dirichlet")],
)
def test_splits_under_the_names_of_others(theirs: str, ours: str) -> None:
    named, known = (get_source("mnist", {"split": split}) for split in (theirs, ours))
    assert named == known
    assert named.to_config()["split"] == ours
    assert get_source("mnist").replace(split=theirs) == known


def test_quantity_skew_gives_unequal_sizes_of_alike_labels() -> None:
    y = np.arange(6000) % 3
    sizes = {}
    for alpha in (0.3, 100.0):
        source = get_source(
            "mnist", {"split": "quantity-skew", "alpha": alpha, "clients": 10, "minimum": 60}
        )
        owner = source.owners(y, 0)  # type: ignore[attr-defined]
        counts = np.bincount(owner, minlength=10)
        assert counts.sum() == 6000
        assert counts.min() >= 60
        sizes[alpha] = counts.std()
        share = np.bincount(y[owner == counts.argmax()]) / counts.max()
        np.testing.assert_allclose(share, 1 / 3, atol=0.05)
    assert sizes[0.3] > 5 * sizes[100.0]


def test_sizes_as_flower_has_them() -> None:
    rng = np.random.default_rng(0)
    shares = {kind: partition.size_weights(kind, 4, rng) for kind in partition.SIZES[3:]}
    np.testing.assert_allclose(shares["linear"] / shares["linear"][0], [1, 2, 3, 4])
    np.testing.assert_allclose(shares["square"] / shares["square"][0], [1, 4, 9, 16])
    np.testing.assert_allclose(np.diff(np.log(shares["exponential"])), 1)


def test_whole_numbers_beyond_single_precision_are_refused() -> None:
    x = np.array([[0], [2**24 + 1], [3]])
    with pytest.raises(InvalidInput, match="whole numbers beyond 16,777,216 as inputs"):
        from_arrays("wide", x, np.array([0, 1, 0]), np.zeros(3, int), validation=0, test=0)
