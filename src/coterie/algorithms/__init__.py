"""Methods, one file each; `base` holds the protocol and the registry."""

from coterie.algorithms import fedavg, fedu, graphproj, local, lpproj, pfedme, pooled
from coterie.algorithms.base import METHODS, Method, get_method, method
from coterie.algorithms.fedavg import FedAvg
from coterie.algorithms.fedu import DFedU, FedU
from coterie.algorithms.graphproj import GraphProj
from coterie.algorithms.local import Local, equal_compute
from coterie.algorithms.lpproj import LpProj, LpProj1, LpProj2
from coterie.algorithms.pfedme import PFedMe
from coterie.algorithms.pooled import Global

__all__ = [
    "METHODS",
    "DFedU",
    "FedAvg",
    "FedU",
    "Global",
    "GraphProj",
    "Local",
    "LpProj",
    "LpProj1",
    "LpProj2",
    "Method",
    "PFedMe",
    "equal_compute",
    "fedavg",
    "fedu",
    "get_method",
    "graphproj",
    "local",
    "lpproj",
    "method",
    "pfedme",
    "pooled",
]
