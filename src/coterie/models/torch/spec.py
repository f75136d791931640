"""A PyTorch module by name, for TOML files, the command line and real federations: `[model] name =
"torch", module = "wards.nets:make"`.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.models.base import Model, ModelSpec, model_spec
from coterie.models.torch.backend import CHOICES, Choice
from coterie.models.torch.callback import need_torch, reason
from coterie.models.torch.module import torch_model

SEED = 0


def imported(where: str, path: str) -> Any:
    """What `package.module:name` names; the package must be installed (or lie on PYTHONPATH) on
    this machine.
    """
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InvalidInput(f"{where} is {path!r}, but must be of the form package.module:name.")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"{where} is {path!r}, but that cannot be imported here ({reason(error)})."
        ) from None
    return found


@model_spec("torch")
class TorchSpec(ModelSpec):
    """Your own PyTorch module, by the name of a function that makes it."""

    module: str = option(
        help=(
            "package.module:name of a function without arguments (or a class) that gives an"
            " nn.Module"
        )
    )
    loss: str | None = option(
        None,
        "package.module:name of a function loss(outputs, targets); nothing: cross-entropy or half"
        " the squared error",
    )
    shared_statistics: bool | None = option(
        None,
        "true: running statistics (batch normalisation) are parameters, sent and averaged with the"
        " others; nothing: each client has its own",
    )
    backend: str = option(
        "auto",
        "who computes it: JAX, all clients at once, or PyTorch by callbacks, one after the other;"
        " auto: JAX where it can",
        choices=CHOICES,
    )
    l2: float = option(0.0, "adds (l2/2)‖parameters‖² to the loss", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        need_torch()
        import torch

        make = imported("model.module", self.module)
        loss = None if self.loss is None else imported("model.loss", self.loss)
        with torch.random.fork_rng(devices=[]):  # all machines must begin with the same values
            torch.manual_seed(SEED)
            try:
                module = make if isinstance(make, torch.nn.Module) else make()
            except Exception as error:
                raise InvalidInput(
                    f"model.module is {self.module!r}, but calling it failed ({reason(error)})."
                ) from None
        loss = loss() if isinstance(loss, type) else loss
        return torch_model(
            module,
            loss,
            shared_statistics=bool(self.shared_statistics),
            backend=cast(Choice, self.backend),
        )
