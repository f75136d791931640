"""The IDX format of MNIST and its relatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.cache import Arrays, cached
from coterie.data.files import Published, corrupt, locate, read_bytes

UBYTE = 0x08


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an IDX file: two zero bytes, a type, the number of axes, their lengths
    (big-endian), the data.
    """
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UBYTE:
        raise corrupt(path, "it does not begin like an IDX file of bytes")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise corrupt(path, "its header is cut off")
    shape = tuple(int(n) for n in np.frombuffer(data, ">i4", data[3], 4))
    expected = int(np.prod(shape))
    if min(shape) < 0 or len(data) - start != expected:
        raise corrupt(path, f"its header promises {expected} bytes, it holds {len(data) - start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def load_idx(
    name: str,
    published: Published,
    counts: tuple[int, int],
    data_dir: str | None,
    download: bool,
    *,
    transposed: bool = False,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures and labels of a set in four IDX files (train pictures, train labels, test pictures,
    test labels), train first.

    `counts` are the published numbers of training and test samples; files with others are refused.
    """
    paths = list(locate(published, data_dir, download=download).values())

    def parse() -> Arrays:
        parts: list[NDArray[Any]] = [read_idx(p) for p in paths]
        for images, labels, count, path in zip(
            parts[::2], parts[1::2], counts, paths[::2], strict=True
        ):
            if images.shape != (count, 28, 28) or labels.shape != (count,):
                raise InvalidInput(
                    f"{path} and its labels have the shapes {images.shape} and {labels.shape}, but"
                    f" {published.title} has {count:,} pictures of 28×28 there; they are not the"
                    " published files."
                )
        x = np.concatenate(parts[::2])[..., None]
        return {
            "x": np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if transposed else x,
            "y": np.concatenate(parts[1::2]),
        }

    arrays = cached(name, paths, parse)
    return arrays["x"], arrays["y"]
