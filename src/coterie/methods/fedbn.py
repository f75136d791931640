"""FedBN: FedAvg whose clients keep their normalisation layers."""

from __future__ import annotations

from coterie.core.errors import notice
from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.methods.base import method
from coterie.methods.split import SplitModel, matching


@method(
    "fedbn",
    title="FedBN",
    paper=(
        "Li, Jiang, Zhang, Kamp, Dou, FedBN: Federated Learning on Non-IID Features via Local Batch"
        " Normalization, ICLR 2021"
    ),
)
class FedBN(SplitModel):
    """FedAvg on all parameters but those of normalisation layers, which each client keeps, like
    their statistics: for clients whose inputs are shifted or scaled.

    min over w and b_1 … b_N of Σ_k f_k(w, b_k)

    (w_k, b_k) start from w and from what client k kept;  R SGD steps on both together

    Hub: w ← (1−β) w + β · mean_{k∈S} w_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    b_k           the parameters that `personal` matches (default: "*norm*, bn*")
    w             all other parameters
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    ============  ==============================================================================

    Statistics of batch normalisation are each client's own with every method here (docs/models.md);
    FedBN keeps scale and shift, too. With a model whose parameters the default does not match it is
    FedAvg, and says so; a pattern that was given must match. The paper averages clients alike.
    """

    personal: str | None = option(
        None,
        'patterns for what is personal, with commas between; nothing: "*norm*, bn*"',
    )
    shared: str | None = option(
        None, "names of the shared layers, with commas between, in place of `personal`"
    )
    weighting: str = option(
        "uniform",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def personal_leaves(self, template: Vector) -> set[str]:
        if self.personal is not None or self.shared is not None:
            return super().personal_leaves(template)
        found = matching(template, "*norm*, bn*")
        if not found:
            notice("fedbn found no normalisation layer in this model, so it does what FedAvg does.")
        return found
