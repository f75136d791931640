"""Hugging Face data sets and flwr-datasets partitioners as federations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data import get_source
from coterie.data.hugging import from_hugging_face

RNG = np.random.default_rng(6)
PICTURES = RNG.integers(0, 256, (60, 4, 5, 3), np.uint8)
LABELS = [i % 3 for i in range(60)]


@pytest.fixture
def pictures() -> Any:
    datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is an extra")
    from PIL import Image

    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "owl"]),
            "ward": datasets.Value("string"),
        }
    )
    rows = {
        "image": [Image.fromarray(p) for p in PICTURES],
        "label": LABELS,
        "ward": ["north" if i < 25 else "south" for i in range(60)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def test_clients_by_a_column(pictures: Any) -> None:
    fed = from_hugging_face(pictures, target="label", client="ward", standardise=False)
    assert fed.facts["clients"] == ["north", "south"]
    assert fed.facts["labels"] == ["cat", "dog", "owl"]
    assert fed.input_shape == (4, 5, 3)
    assert [sum(s.sizes[k] for s in fed.splits) for k in range(2)] == [25, 35]
    # Every picture is there once, with its own label.
    there = {p.tobytes(): label for p, label in zip(PICTURES, LABELS, strict=True)}
    found = {
        np.round(255 * x).astype(np.uint8).tobytes(): int(y)
        for s in fed.splits
        for x, y in zip(s.x, s.y, strict=True)
    }
    assert found == there


def test_partitioners_of_flower(pictures: Any) -> None:
    flower = pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is an extra")
    cut = flower.PathologicalPartitioner(
        num_partitions=3, partition_by="label", num_classes_per_partition=1, shuffle=False
    )
    fed = from_hugging_face(pictures, target="label", partitioner=cut)
    assert [len(np.flatnonzero(row)) for row in fed.label_counts()] == [1, 1, 1]
    sized = flower.LinearPartitioner(num_partitions=3)
    fed = from_hugging_face(pictures, target="label", partitioner=sized)
    assert [sum(s.sizes[k] for s in fed.splits) for k in range(3)] == [10, 20, 30]
    natural = flower.NaturalIdPartitioner(partition_by="ward")
    fed = from_hugging_face(pictures, target="label", partitioner=natural)
    assert [sum(s.sizes[k] for s in fed.splits) for k in range(2)] == [25, 35]


def test_as_a_source(pictures: Any, tmp_path: Path) -> None:
    pictures.save_to_disk(str(tmp_path / "saved"))
    options: dict[str, Any] = {"path": str(tmp_path / "saved"), "clients": 4, "minimum": 5}
    fed = get_source("hugging-face", {**options, "split": "iid"}).load(0)
    assert (fed.clients, fed.input_shape, fed.classes) == (4, (4, 5, 3), 3)
    by_ward = {"path": options["path"], "client": "ward"}
    assert get_source("hugging-face", by_ward).load(0).facts["clients"] == ["north", "south"]
    with pytest.raises(InvalidInput, match="the target column 'labl' is unknown; did you mean"):
        get_source("hugging-face", {**options, "target": "labl"}).load(0)
    nowhere = {"path": str(tmp_path / "nowhere"), "download": False}
    with pytest.raises(InvalidInput, match=r"hugging-face.path is '.*', which cannot be read"):
        get_source("hugging-face", nowhere).load(0)


def test_arrays_and_text_labels() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is an extra")
    rows = {
        "signal": RNG.normal(size=(12, 5)).tolist(),
        "kind": ["a", "b", "b"] * 4,
        "site": [0, 1] * 6,
    }
    data = datasets.Dataset.from_dict(rows)
    fed = from_hugging_face(data, target="kind", client="site")
    assert (fed.input_shape, fed.facts["labels"]) == ((5,), ["a", "b"])
    with pytest.raises(InvalidInput, match="give a partitioner or a client column"):
        from_hugging_face(data, target="kind")
    uneven = datasets.Dataset.from_dict({**rows, "signal": [[1.0]] + [[1.0, 2.0]] * 11})
    with pytest.raises(InvalidInput, match=r"values of the shapes \(1,\) and \(2,\)"):
        from_hugging_face(uneven, target="kind", client="site")


def test_without_the_library_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[hf\]'"):
        get_source("hugging-face", {"path": "x"}).load(0)
