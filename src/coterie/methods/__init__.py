"""Methods, one file each; `base` holds the protocol and the registry."""

from coterie.methods import fedavg, fedu, graphproj, local, lpproj, pfedme, pooled
from coterie.methods.afl import AFL
from coterie.methods.apfl import APFL
from coterie.methods.apple import APPLE
from coterie.methods.base import METHODS, Method, get_method, method
from coterie.methods.cfl import CFL
from coterie.methods.dada import Dada
from coterie.methods.ditto import Ditto
from coterie.methods.fedala import FedALA
from coterie.methods.fedamp import FedAMP
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedbabu import FedBABU
from coterie.methods.fedbn import FedBN
from coterie.methods.fedem import FedEM
from coterie.methods.fedfomo import FedFomo
from coterie.methods.fedprox import FedProx
from coterie.methods.fedrep import FedPer, FedRep
from coterie.methods.fedu import DFedU, FedU
from coterie.methods.graphproj import GraphProj
from coterie.methods.ifca import IFCA
from coterie.methods.knnper import KNNLocal, KNNPer
from coterie.methods.l2gd import L2GD
from coterie.methods.lgfedavg import LGFedAvg
from coterie.methods.local import Local, equal_compute
from coterie.methods.lpproj import LpProj, LpProj1, LpProj2
from coterie.methods.mocha import Mocha
from coterie.methods.perfedavg import PerFedAvg
from coterie.methods.pfedgraph import PFedGraph
from coterie.methods.pfedme import PFedMe
from coterie.methods.pooled import Global
from coterie.methods.rsa import RSA
from coterie.methods.scaffold import Scaffold
from coterie.methods.sfl import SFL

__all__ = [
    "AFL",
    "APFL",
    "APPLE",
    "CFL",
    "IFCA",
    "L2GD",
    "METHODS",
    "RSA",
    "SFL",
    "DFedU",
    "Dada",
    "Ditto",
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
    "Global",
    "GraphProj",
    "KNNLocal",
    "KNNPer",
    "LGFedAvg",
    "Local",
    "LpProj",
    "LpProj1",
    "LpProj2",
    "Method",
    "Mocha",
    "PFedGraph",
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
