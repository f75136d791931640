"""coterie: a model of its own for every client of a federation, learnt together with its kin,
without moving their data.

Names are imported when they are first asked for: `coterie keys` and `coterie status` need no JAX,
and do not wait for it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.core.errors import CoterieError, Diverged, InvalidInput, Notice
    from coterie.core.metrics import METRICS, Metric, register_metric
    from coterie.core.schedule import Cosine, InverseSqrt, InverseTime, Linear, Power, SquareRoot
    from coterie.core.vector import Vector
    from coterie.coupling import graph
    from coterie.coupling.graph import Graph
    from coterie.coupling.learnt import GraphRule, learn_graph
    from coterie.data import (
        Federation,
        from_arrays,
        from_datasets,
        from_folder,
        from_hugging_face,
        from_table,
    )
    from coterie.engine.many import simulate_many
    from coterie.engine.simulate import Result, Simulator, simulate
    from coterie.engine.training import Training
    from coterie.estimators import PersonalClassifier, PersonalRegressor
    from coterie.methods import (
        AFL,
        APFL,
        APPLE,
        CFL,
        IFCA,
        L2GD,
        METHODS,
        RSA,
        SFL,
        Dada,
        DFedU,
        Ditto,
        FedALA,
        FedAMP,
        FedAvg,
        FedBABU,
        FedBN,
        FedEM,
        FedFomo,
        FedPer,
        FedProx,
        FedRep,
        FedU,
        Global,
        GraphProj,
        KNNLocal,
        KNNPer,
        LGFedAvg,
        Local,
        LpProj,
        LpProj1,
        LpProj2,
        Method,
        Mocha,
        PerFedAvg,
        PFedGraph,
        PFedMe,
        Scaffold,
        equal_compute,
        get_method,
    )
    from coterie.models import MODELS, Model, Statistics, get_model, torch_model
    from coterie.models.torch.loader import LoaderClient
    from coterie.runs.answer import answer
    from coterie.runs.compare import compare
    from coterie.runs.tracking import tracker
    from coterie.runs.tuning.tune import tune

__version__ = "0.2.0"

_WHERE = {
    "coterie.methods": (
        "AFL APFL APPLE CFL IFCA L2GD METHODS RSA Dada SFL DFedU Ditto FedALA FedAMP FedAvg"
        " FedBABU FedBN FedEM FedFomo FedPer FedProx FedRep FedU Global GraphProj KNNLocal KNNPer"
        " LGFedAvg Local LpProj LpProj1 LpProj2 Method Mocha PerFedAvg PFedGraph PFedMe Scaffold"
        " equal_compute get_method"
    ),
    "coterie.runs.answer": "answer",
    "coterie.runs.compare": "compare",
    "coterie.runs.tracking": "tracker",
    "coterie.runs.tuning.tune": "tune",
    "coterie.coupling": "graph",
    "coterie.coupling.graph": "Graph",
    "coterie.coupling.learnt": "GraphRule learn_graph",
    "coterie.data": "Federation from_arrays from_datasets from_folder from_hugging_face from_table",
    "coterie.engine.training": "Training",
    "coterie.estimators": "PersonalClassifier PersonalRegressor",
    "coterie.engine.many": "simulate_many",
    "coterie.engine.simulate": "Result Simulator simulate",
    "coterie.core.errors": "CoterieError Diverged InvalidInput Notice",
    "coterie.core.metrics": "METRICS Metric register_metric",
    "coterie.models": "MODELS Model Statistics get_model torch_model",
    "coterie.core.schedule": "Cosine InverseSqrt InverseTime Linear Power SquareRoot",
    "coterie.models.torch.loader": "LoaderClient",
    "coterie.core.vector": "Vector",
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names.split()}
_PARTS = (
    "adversary",
    "channel",
    "core",
    "coupling",
    "data",
    "deploy",
    "engine",
    "estimators",
    "methods",
    "models",
    "network",
    "report",
    "runs",
)
_SHORT = {"schedule": "coterie.core.schedule", "vector": "coterie.core.vector"}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"coterie.{name}")
    if name in _SHORT:
        return importlib.import_module(_SHORT[name])
    if name not in _MODULE:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE[name]), name)
    globals()[name] = value  # once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(name: str, *, seed: int = 0, **options: Any) -> "Federation":
    """A built-in federation by name, e.g. `load("digits", clients=20)`."""
    from coterie.data import get_source
    from coterie.data.arguments import as_seed

    return get_source(name, options).load(as_seed(seed))


__all__ = [
    "AFL",
    "APFL",
    "APPLE",
    "CFL",
    "IFCA",
    "L2GD",
    "METHODS",
    "METRICS",
    "MODELS",
    "RSA",
    "SFL",
    "Cosine",
    "CoterieError",
    "DFedU",
    "Dada",
    "Ditto",
    "Diverged",
    "FedALA",
    "FedAMP",
    "FedAvg",
    "FedBABU",
    "FedBN",
    "FedEM",
    "FedFomo",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedU",
    "Federation",
    "Global",
    "Graph",
    "GraphProj",
    "GraphRule",
    "InvalidInput",
    "InverseSqrt",
    "InverseTime",
    "KNNLocal",
    "KNNPer",
    "LGFedAvg",
    "Linear",
    "LoaderClient",
    "Local",
    "LpProj",
    "LpProj1",
    "LpProj2",
    "Method",
    "Metric",
    "Mocha",
    "Model",
    "Notice",
    "PFedGraph",
    "PFedMe",
    "PerFedAvg",
    "PersonalClassifier",
    "PersonalRegressor",
    "Power",
    "Result",
    "Scaffold",
    "Simulator",
    "SquareRoot",
    "Statistics",
    "Training",
    "Vector",
    "__version__",
    "answer",
    "compare",
    "equal_compute",
    "from_arrays",
    "from_datasets",
    "from_folder",
    "from_hugging_face",
    "from_table",
    "get_method",
    "get_model",
    "graph",
    "learn_graph",
    "load",
    "register_metric",
    "simulate",
    "simulate_many",
    "torch_model",
    "tracker",
    "tune",
]
