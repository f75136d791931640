"""Methods, one file each; `base` holds the protocol and the registry."""

from coterie.algorithms import fedavg, fedu, graphproj, local, lpproj, pfedme, pooled
from coterie.algorithms.afl import AFL
from coterie.algorithms.apfl import APFL
from coterie.algorithms.base import METHODS, Method, get_method, method
from coterie.algorithms.ditto import Ditto
from coterie.algorithms.fedavg import FedAvg
from coterie.algorithms.fedprox import FedProx
from coterie.algorithms.fedrep import FedPer, FedRep
from coterie.algorithms.fedu import DFedU, FedU
from coterie.algorithms.graphproj import GraphProj
from coterie.algorithms.l2gd import L2GD
from coterie.algorithms.lgfedavg import LGFedAvg
from coterie.algorithms.local import Local, equal_compute
from coterie.algorithms.lpproj import LpProj, LpProj1, LpProj2
from coterie.algorithms.mocha import Mocha
from coterie.algorithms.perfedavg import PerFedAvg
from coterie.algorithms.pfedme import PFedMe
from coterie.algorithms.pooled import Global
from coterie.algorithms.rsa import RSA
from coterie.algorithms.scaffold import Scaffold

__all__ = [
    "AFL",
    "APFL",
    "L2GD",
    "METHODS",
    "RSA",
    "DFedU",
    "Ditto",
    "FedAvg",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedU",
    "Global",
    "GraphProj",
    "LGFedAvg",
    "Local",
    "LpProj",
    "LpProj1",
    "LpProj2",
    "Method",
    "Mocha",
    "PFedMe",
    "PerFedAvg",
    "Scaffold",
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
