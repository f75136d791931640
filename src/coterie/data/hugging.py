"""Data sets of Hugging Face, pictures too, cut into clients by a column, by the partitioners of
flwr-datasets, or by our own rules.

A table whose rows name their client needs none of this: `from_table` reads a Dataset as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, unknown
from coterie.core.options import option
from coterie.data import partition
from coterie.data.base import source
from coterie.data.federation import Federation, from_arrays
from coterie.data.labelled import SPLITS, Labelled
from coterie.data.scaling import standardise as standardised

ROW = "__coterie_row__"


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise InvalidInput(
            "Hugging Face's datasets is not installed, but this needs it: pip install"
            " 'coterie[hf]'."
        ) from None
    return datasets


def _column(dataset: Any, what: str, name: str | None) -> str:
    if name not in dataset.column_names:
        raise unknown(f"the {what} column", name, dataset.column_names)
    return str(name)


def _input_column(dataset: Any, target: str, wanted: str | None, client: str | None) -> str:
    """The column that is asked for; else the one of pictures or arrays, if there is one only."""
    if wanted is not None:
        return _column(dataset, "input", wanted)
    datasets = _library()
    kinds = (datasets.Image, datasets.Array2D, datasets.Array3D, datasets.Sequence)
    kinds += (datasets.List,) if hasattr(datasets, "List") else ()
    rest = {k: f for k, f in dataset.features.items() if k not in (target, client)}
    found = [k for k, f in rest.items() if isinstance(f, kinds)]
    if len(found) == 1:
        return found[0]
    raise InvalidInput(
        f"the data set has {len(found)} columns of pictures or arrays ({', '.join(rest)}); name the"
        " one to learn from with `inputs`, or read a table with from_table."
    )


def _arrays(dataset: Any, column: str) -> NDArray[Any]:
    """All values of a column of pictures or arrays, which must have one shape."""
    parts: list[NDArray[Any]] = []
    for start in range(0, len(dataset), 1024):
        for value in dataset[start : start + 1024][column]:
            seen = np.asarray(value)
            if parts and seen.shape != parts[0].shape:
                raise InvalidInput(
                    f"the column {column!r} has values of the shapes {parts[0].shape} and"
                    f" {seen.shape}; all must be alike: resize or convert them first (`map`)."
                )
            parts.append(seen)
    if not parts or parts[0].dtype.kind not in "buif":
        raise InvalidInput(f"the column {column!r} has no pictures or arrays of numbers.")
    x = np.stack(parts)
    x = x[..., None] if x.ndim == 3 and x.dtype == np.uint8 else x  # pictures without colours
    return x if x.dtype == np.uint8 else x.astype(np.float32)


def _labels(dataset: Any, target: str) -> tuple[NDArray[np.int32], list[str]]:
    values = np.asarray(dataset[:][target])
    names = getattr(dataset.features[target], "names", None)
    if names is None:
        kept, values = np.unique(values, return_inverse=True)
        names = [str(name) for name in kept]
    if values.ndim != 1 or (len(values) and values.min() < 0):
        raise InvalidInput(f"the target column {target!r} is not one class for each row.")
    return values.astype(np.int32), list(names)


def owners_by(partitioner: Any, dataset: Any) -> partition.Owners:
    """Who owns which row, by a partitioner of flwr-datasets (or what has `dataset`,
    `num_partitions` and `load_partition`). A row that none of its parts has is nobody's.
    """
    for name in ("load_partition", "num_partitions"):
        if not hasattr(type(partitioner), name):
            raise InvalidInput(
                f"the partitioner is of type {type(partitioner).__name__}, but must be one of"
                " flwr_datasets.partitioner."
            )
    partitioner.dataset = dataset.add_column(ROW, list(range(len(dataset))))
    owner = np.full(len(dataset), -1, np.int64)
    for part in range(int(partitioner.num_partitions)):
        rows = np.asarray(partitioner.load_partition(part)[ROW], np.int64)
        if (owner[rows] >= 0).any():
            raise InvalidInput(
                f"part {part} of the {type(partitioner).__name__} has rows of another one; a row"
                " must have one owner."
            )
        owner[rows] = part
    return owner


def from_hugging_face(
    dataset: Any,
    *,
    target: str,
    partitioner: Any = None,
    client: str | None = None,
    inputs: str | None = None,
    standardise: bool = True,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    name: str = "hugging-face",
) -> Federation:
    """A federation from a Hugging Face `Dataset` of pictures or arrays with classes.

    Who owns a row is said by a `partitioner` of flwr-datasets, or by the column `client`. `inputs`
    names the column to learn from, if there are several of pictures or arrays. Each client's rows
    are cut into train, validation and test by `seed`.
    """
    datasets = _library()
    if not isinstance(dataset, datasets.Dataset):
        raise InvalidInput(
            f"the data set is of type {type(dataset).__name__}, but must be a datasets.Dataset (one"
            " split of a DatasetDict)."
        )
    if (partitioner is None) == (client is None):
        raise InvalidInput("give a partitioner or a client column, and not both.")
    _column(dataset, "target", target)
    facts: dict[str, Any] = {}
    if client is not None:
        owner, facts["clients"] = partition.natural(dataset[:][_column(dataset, "client", client)])
    else:
        owner = owners_by(partitioner, dataset)
    x = _arrays(dataset, _input_column(dataset, target, inputs, client))
    y, facts["labels"] = _labels(dataset, target)
    made = from_arrays(
        name,
        x.astype(np.float32),
        y,
        owner,
        classes=len(facts["labels"]),
        validation=validation,
        test=test,
        seed=seed,
        facts=facts,
    )
    if standardise:
        return standardised(made, in_place=True)
    return _as_bytes(made) if x.dtype == np.uint8 else made


def _as_bytes(made: Federation) -> Federation:
    """Pictures that are not standardised are divided by 255."""
    splits = {
        n: dataclasses.replace(getattr(made, n), x=getattr(made, n).x / np.float32(255))
        for n in ("train", "validation", "test")
    }
    facts = {**made.facts, "scaling": "divided by 255"}
    return dataclasses.replace(made, **splits, facts=facts)  # type: ignore[arg-type]


@source("hugging-face")
class HuggingFace(Labelled):
    """Pictures or arrays with classes from Hugging Face: a name on the hub, or a folder that
    `save_to_disk` wrote; clients by a column, or by one of our splits.
    """

    path: str = option(help="the data set's name on the hub, or a folder of `save_to_disk`")
    subset: str | None = option(None, "which of its configurations, where it has several")
    parts: str = option("train", "which of its splits to take, by commas, e.g. train,test")
    inputs: str | None = option(None, "the column of pictures or arrays, if there are several")
    target: str = option("label", "the column of classes")
    client: str | None = option(None, "the column that says whose row it is (a natural split)")
    clients: int = option(20, "number of clients, without a client column", symbol="N", low=1)
    split: str = option("dirichlet", "how samples are given to clients", choices=SPLITS)

    def unused(self) -> dict[str, str]:
        mine = {"data_dir": "hugging-face.path says where it is"}
        if self.client is not None:
            mine |= dict.fromkeys(("split", "clients"), "hugging-face.client names the clients")
        return {**super().unused(), **mine}

    def load(self, seed: int) -> Federation:
        dataset = self._read()
        x = _arrays(dataset, _input_column(dataset, self.target, self.inputs, self.client))
        y, names = _labels(dataset, _column(dataset, "target", self.target))
        facts: dict[str, Any] = {"labels": names}
        if self.client is None:
            rows, owner = self.dealt(y, seed)
            if rows is not None:
                x, y = x[rows], y[rows]
        else:
            known = dataset[:][_column(dataset, "client", self.client)]
            owner, facts["clients"] = partition.natural(known)
        x, y, more = self.hide(x, y, owner, seed, len(names))
        made = self.assemble(
            x, y, owner, seed, classes=len(names), facts=facts | more, scaling=None
        )
        plain = not self.standardise and not self.paper
        return _as_bytes(made) if plain and x.dtype == np.uint8 else made

    def _read(self) -> Any:
        datasets = _library()
        folder = Path(self.path).expanduser()
        wanted: Sequence[str] = [part.strip() for part in self.parts.split(",") if part.strip()]
        try:
            if folder.is_dir() and (
                (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()
            ):
                whole = datasets.load_from_disk(str(folder))
            else:
                more = (
                    {}
                    if self.download
                    else {"download_config": datasets.DownloadConfig(local_files_only=True)}
                )
                whole = datasets.load_dataset(self.path, self.subset, **more)
        except Exception as error:  # the library's own, of many kinds: no network, no such set, …
            why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise InvalidInput(
                f"hugging-face.path is {self.path!r}, which cannot be read ({why}); put a folder"
                " that save_to_disk wrote where it says, or name a set of the hub."
            ) from None
        if isinstance(whole, datasets.Dataset):
            return whole
        for part in wanted:
            if part not in whole:
                raise unknown("the split", part, whole)
        return datasets.concatenate_datasets([whole[part] for part in wanted])
