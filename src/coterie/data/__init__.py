"""Federations: what each client has. One file per source; `partition` holds the splitting rules."""

from coterie.data import (
    characters,
    cifar10,
    cifar100,
    digits,
    emnist,
    femnist,
    har,
    hugging,
    linear,
    mapped,
    medmnist,
    mnist,
    own,
    synthetic,
    tables,
    vehicle,
)
from coterie.data.base import SOURCES, Source, get_source, source
from coterie.data.datasets import from_datasets
from coterie.data.federation import (
    Federation,
    Split,
    from_arrays,
    pack,
    warn_without_test,
    without_test,
)
from coterie.data.hugging import from_hugging_face
from coterie.data.partition import downsample
from coterie.data.prepared import Prepared, inputs_of
from coterie.data.scaling import standardise
from coterie.data.tables import from_folder, from_table

__all__ = [
    "SOURCES",
    "Federation",
    "Prepared",
    "Source",
    "Split",
    "characters",
    "cifar10",
    "cifar100",
    "digits",
    "downsample",
    "emnist",
    "femnist",
    "from_arrays",
    "from_datasets",
    "from_folder",
    "from_hugging_face",
    "from_table",
    "get_source",
    "har",
    "hugging",
    "inputs_of",
    "linear",
    "mapped",
    "medmnist",
    "mnist",
    "own",
    "pack",
    "source",
    "standardise",
    "synthetic",
    "tables",
    "vehicle",
    "warn_without_test",
    "without_test",
]
