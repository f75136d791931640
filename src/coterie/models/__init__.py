"""Models: `Model(init, apply)`, and the shipped ones by name."""

from coterie.models import convolutional, dense, sequence
from coterie.models.base import MODELS, Fitted, Model, ModelSpec, Statistics, get_model, model_spec
from coterie.models.torch import spec as torch_spec
from coterie.models.torch.module import TorchModel, torch_model

__all__ = [
    "MODELS",
    "Fitted",
    "Model",
    "ModelSpec",
    "Statistics",
    "TorchModel",
    "convolutional",
    "dense",
    "get_model",
    "model_spec",
    "sequence",
    "torch_model",
    "torch_spec",
]
