"""On the published files themselves; run when COTERIE_DATA points to them."""

from __future__ import annotations

import dataclasses
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from coterie.data import get_source, har, mnist
from coterie.data.federation import Federation
from coterie.data.files import read_bytes, search


def load(name: str, **options: object) -> Federation:
    return get_source(name, {"download": False, **options}).load(0)


def total(fed: Federation) -> np.ndarray:
    return np.sum([s.sizes for s in fed.splits], axis=0)


def test_mnist_fedu(real: Path) -> None:
    fed = load("mnist")
    sizes = total(fed)
    assert fed.clients == 100
    assert sizes.sum() == 61_866
    assert sizes.mean() == pytest.approx(618.66, abs=1e-9)
    assert round(float(sizes.std()), 1) == 343.8
    counts = fed.label_counts()
    for u in range(100):
        assert set(np.flatnonzero(counts[u])) <= {u % 10, (u + 1) % 10}


def test_mnist_second_load_is_fast(real: Path) -> None:
    load("mnist")
    took = []
    for _ in range(3):  # the machine may be busy with something else; the best of three is ours
        begin = time.perf_counter()
        load("mnist")
        took.append(time.perf_counter() - begin)
    assert min(took) < 1.0


def test_mnist_splits_are_disjoint_and_true_to_the_files(real: Path) -> None:
    from coterie.data.mnist import Mnist

    x, y = Mnist().pictures()
    assert x.shape == (70_000, 28, 28, 1)
    assert np.bincount(y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    fed = load("mnist", split="labels", clients=20, standardise=False)
    rows = np.concatenate([s.x for s in fed.splits]) * 255
    assert len(rows) == 70_000
    # MNIST has no two equal pictures among these, so equal sums of products mean equal sets.
    key = np.random.default_rng(0).normal(size=784)
    np.testing.assert_allclose(
        np.sort(rows @ key), np.sort(x.reshape(70_000, -1) @ key), rtol=1e-4, atol=1e-2
    )


def test_mnist_paper_scaling_is_over_the_whole_set(real: Path) -> None:
    from coterie.data.mnist import Mnist

    x = Mnist().pictures()[0].reshape(70_000, -1).astype(np.float64)
    mean, deviation = x.mean(0), x.std(0)
    fed = load("mnist", protocol="paper")
    assert len(fed.validation) == 0
    np.testing.assert_array_equal(fed.train.sizes, np.floor(0.75 * total(fed)))
    lowest = -mean / (deviation + 0.001)
    np.testing.assert_allclose(fed.train.x.min(0), lowest, rtol=1e-3, atol=1e-4)


def test_mnist_pfedme(real: Path) -> None:
    fed = load("mnist", clients=20, split="pfedme", protocol="paper")
    assert (fed.train.sizes.min(), fed.train.sizes.max()) == (1165, 3834)
    assert ((fed.label_counts() > 0).sum(1) == 2).all()


def test_har(real: Path) -> None:
    fed = load("har", protocol="paper")
    sizes = total(fed)
    assert fed.clients == 30
    assert fed.input_shape == (561,)
    assert sizes.sum() == 10_299
    assert round(float(sizes.mean())) == 343
    assert round(float(sizes.std()), 1) == 35.1  # Table II of the FedU paper
    assert np.abs(fed.train.x).max() <= 1
    assert fed.facts["no_test"] == []


def test_cifar10_partial(real: Path) -> None:
    fed = load("cifar10", partial=True, split="labels", clients=20, protocol="paper")
    assert total(fed).sum() == 30_000
    assert fed.input_shape == (32, 32, 3)
    assert (fed.train.x.min(), fed.train.x.max()) == (-1, 1)
    assert ((fed.label_counts() > 0).sum(1) == 3).all()


def test_vehicle_subset(real: Path) -> None:
    fed = load("vehicle")
    assert fed.clients == 23
    assert fed.input_shape == (100,)
    assert total(fed).sum() == 1860
    assert sorted(total(fed))[:3] == [7, 8, 10]
    packed = np.load(real / "vehicle" / "vehicle_ditto_train_subset.npz", allow_pickle=False)
    assert np.mean(packed["y"] > 0) == pytest.approx(sum(int(s.y.sum()) for s in fed.splits) / 1860)


@pytest.fixture
def served(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, str]]:
    """An empty cache, no data folder, and a server on this machine for what the test puts into the
    folder.
    """
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.delenv("COTERIE_DATA")
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "empty"))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_downloaded_mnist_has_the_pinned_checksums(
    real: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    for path in (real / "mnist").iterdir():
        (folder / path.name).symlink_to(path)
    here = tuple(dataclasses.replace(d, urls=(f"{url}/{d.file}",)) for d in mnist.MNIST.downloads)
    monkeypatch.setattr(mnist, "MNIST", dataclasses.replace(mnist.MNIST, downloads=here))
    assert total(get_source("mnist").load(0)).sum() == 61_866


def test_downloaded_har_has_the_pinned_checksums(
    real: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = served
    found = search(har.HAR, str(real))
    with zipfile.ZipFile(folder / "inner.zip", "w") as inner:
        for name, path in found.items():
            inner.writestr(f"UCI HAR Dataset/{name}", read_bytes(path))
    with zipfile.ZipFile(folder / "har.zip", "w") as outer:
        outer.write(folder / "inner.zip", "UCI HAR Dataset.zip")
    here = tuple(dataclasses.replace(d, urls=(f"{url}/har.zip",)) for d in har.HAR.downloads)
    monkeypatch.setattr(har, "HAR", dataclasses.replace(har.HAR, downloads=here))
    assert total(get_source("har").load(0)).sum() == 10_299


def test_synthetic_of_pfedme_majority() -> None:
    """Pins what our generator gives: always answering a client's most frequent class is right for
    82.46% of all samples.

    An independent count on one published cut, which is not seeded, gave 82.3%. That is near, but
    the cut cannot be redrawn, so nothing is claimed about it here.
    """
    fed = get_source("synthetic", {"alpha": 0.5, "beta": 0.5, "protocol": "paper"}).load(0)
    assert total(fed).sum() == 205_795
    counts = fed.label_counts() + _test_counts(fed)
    assert round(counts.max(1).sum() / counts.sum(), 4) == 0.8246


def _test_counts(fed: Federation) -> np.ndarray:
    counts = np.zeros((fed.clients, fed.classes), np.int64)
    np.add.at(counts, (np.repeat(np.arange(fed.clients), fed.test.sizes), fed.test.y), 1)
    return counts
