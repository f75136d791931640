"""coterie: a model of its own for every client of a federation, learnt together with its kin, without moving their data."""

from typing import Any

from coterie.algorithms import (
    AFL,
    APFL,
    L2GD,
    METHODS,
    RSA,
    DFedU,
    Ditto,
    FedAvg,
    FedPer,
    FedProx,
    FedRep,
    FedU,
    Global,
    GraphProj,
    LGFedAvg,
    Local,
    LpProj,
    LpProj1,
    LpProj2,
    Method,
    Mocha,
    PerFedAvg,
    PFedMe,
    Scaffold,
    equal_compute,
    get_method,
)
from coterie.comparing import compare
from coterie.coupling import graph
from coterie.coupling.graph import Graph
from coterie.data import Federation, from_arrays, from_datasets, from_folder, from_table, get_source
from coterie.engine.options import Training
from coterie.engine.simulate import Result, Simulator, simulate, simulate_many
from coterie.errors import CoterieError, Diverged, InvalidInput
from coterie.models import MODELS, Model, get_model, torch_model
from coterie.schedule import InverseSqrt, InverseTime, Linear, SquareRoot
from coterie.streaming import LoaderClient
from coterie.vector import Vector

__version__ = "0.1.0"


def load(name: str, *, seed: int = 0, **options: Any) -> Federation:
    """A built-in federation by name, e.g. `load("digits", clients=20)`."""
    return get_source(name, options).load(seed)


__all__ = [
    "AFL",
    "APFL",
    "L2GD",
    "METHODS",
    "MODELS",
    "RSA",
    "CoterieError",
    "DFedU",
    "Ditto",
    "Diverged",
    "FedAvg",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedU",
    "Federation",
    "Global",
    "Graph",
    "GraphProj",
    "InvalidInput",
    "InverseSqrt",
    "InverseTime",
    "LGFedAvg",
    "Linear",
    "LoaderClient",
    "Local",
    "LpProj",
    "LpProj1",
    "LpProj2",
    "Method",
    "Mocha",
    "Model",
    "PFedMe",
    "PerFedAvg",
    "Result",
    "Scaffold",
    "Simulator",
    "SquareRoot",
    "Training",
    "Vector",
    "__version__",
    "compare",
    "equal_compute",
    "from_arrays",
    "from_datasets",
    "from_folder",
    "from_table",
    "get_method",
    "get_model",
    "graph",
    "load",
    "simulate",
    "simulate_many",
    "torch_model",
]
