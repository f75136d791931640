"""kNN-Per: one model for all; every client mixes its answer with the labels of its own nearest
rows. kNN-Local is the same without federating.
"""

from __future__ import annotations

from typing import Any

from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.methods.base import Step, method
from coterie.methods.local import Local
from coterie.methods.remembers import Remembers
from coterie.methods.sgd import Trained
from coterie.methods.star import Averaging
from coterie.models.objective import Objective

MEMORY = ("nearest", "scale", "votes", "validation", "capacity")
"""The options that say what clients remember."""


@method("knn-local", title="kNN-Local", paper="(baseline)")
class KNNLocal(Remembers, Local):
    """Local's model, and at every client a memory of its own training rows, as in kNN-Per; nothing
    is sent. It shows what of kNN-Per's gain comes from remembering, not from federating.

    x_k ← x_k − μ ∇f̃_k(x_k), R times a round, without the rows that λ_k is chosen on;

    p(y|x) = (1−λ_k) p(y|x, x_k) + λ_k Σ_{i∈N(x)} 1[y_i = y] e_i / Σ_{i∈N(x)} e_i

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    k             nearest
    σ             scale
    λ_k           votes; nothing: chosen by each client
    μ             lr
    R             local_steps, or local_epochs
    ============  ==============================================================================

    N(x), e_i and how λ_k is chosen: see `knn-per`. A comparison that has kNN-Per has kNN-Local
    beside it, with the same options, and measures kNN-Per against the better of the two Locals.
    """

    def local(self, received: Any, state: Trained, objective: Objective) -> Step:
        x, kept, steps = self.trained(*state, objective)
        return Step((), Trained(x, kept), steps)

    def models(self, received: Any, state: Trained, objective: Objective) -> dict[str, Vector]:
        return self.mixed(state.x, objective)


@method(
    "knn-per",
    title="kNN-Per",
    paper=(
        "Marfoq, Neglia, Kameni, Vidal, Personalized Federated Learning through Local Memorization,"
        " ICML 2022"
    ),
)
class KNNPer(Remembers, Averaging):
    """FedAvg's model, and at every client a memory of its own training rows: the k nearest of them
    vote, and the client finds out how much that is worth.

    w is trained as by FedAvg. With φ what w computes before its last layer, client k predicts

    p(y|x) = (1−λ_k) p(y|x, w) + λ_k Σ_{i∈N(x)} 1[y_i = y] e_i / Σ_{i∈N(x)} e_i,
    e_i = exp(−‖φ(x) − φ(x_i)‖²/(Hσ)),  N(x) the k nearest of its training rows, φ ∈ R^H

    λ_k is that of 0, 0.1, …, 1 with the least log-loss on rows that it held out: w never saw them,
    and they vote only when λ_k is chosen.

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    k             nearest
    σ             scale
    λ_k           votes; nothing: chosen by each client
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k           weighting = "samples", as in the paper
    ============  ==============================================================================

    The paper chooses λ_k on validation data of the client, and the authors' code reports every λ on
    test data; here each client holds out `validation` of its training rows, the first ones, and the
    federation's validation rows are for choosing between methods. With `votes` given nothing is
    held out. For numbers the mean of the nearest rows' targets takes the place of votes, and λ_k
    has the least squared error; the paper has classes only. The memory is made of the client's rows
    and w when a model is asked for, so nothing is kept and nothing goes stale; at most `capacity`
    rows, those that were held out last.

    "personal" holds what w makes of the client's rows; with `mlr` and `linear` those are the rows
    themselves. It is for the client alone: exports are refused. The model must end in a dense layer
    (mlr, linear, mlp, the convolutional ones) and have no batch normalisation. d numbers go up and
    down.

    A client could remember its rows without federating. So a comparison has kNN-Local beside it,
    and measures the gain against the better of the two Locals.
    """

    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        return Step(*self.trained(received, state, objective))

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        return self.mixed(received, objective)

    def alone(self, plain: Local) -> Local:
        mine = {name: getattr(self, name) for name in MEMORY}
        return KNNLocal().replace(**{name: getattr(plain, name) for name in plain.public()}, **mine)
