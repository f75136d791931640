"""LG-FedAvg: local representations below, a shared head above."""

from __future__ import annotations

from typing import ClassVar

from coterie.methods.base import method
from coterie.methods.split import SplitModel


@method(
    "lg-fedavg",
    title="LG-FedAvg",
    paper=(
        "Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global"
        " Representations, 2020"
    ),
)
class LGFedAvg(SplitModel):
    """The first layers of the network belong to each client alone, the last are averaged: only
    those are sent.

    min over ℓ_1 … ℓ_N and g of Σ_k f_k(ℓ_k, g)

    (ℓ_k, g_k) start from what client k kept and from g;  R SGD steps on both together

    Hub: g ← (1−β) g + β Σ_{k∈S} (n_k/n_S) g_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    g             the layers named by `shared` (default: the last), e.g. shared = "layer1,layer2"
    ℓ_k           all other layers
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ==============================================================================

    The paper's rule may cut anywhere, so any set of layers can be shared. A model that is a single
    dense layer is cut inside: its intercept is shared, its weights are personal; a model with a
    single array is shared as a whole, which is FedAvg. The published code differs: it starts from a
    model that FedAvg has trained before, it averages uniformly, and it reports each client's best
    round as judged on the test data. Its fairness and new-client experiments (adversarial
    representations, ensembles) are not here.
    """

    last_is_shared: ClassVar[bool] = True
