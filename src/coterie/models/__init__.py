"""Models: `Model(init, apply)`, and the shipped ones by name."""

from coterie.models import convolutional, dense
from coterie.models.base import MODELS, Model, ModelSpec, get_model, model_spec

__all__ = ["MODELS", "Model", "ModelSpec", "convolutional", "dense", "get_model", "model_spec"]
