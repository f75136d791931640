"""A model outside of its run: parameters, architecture and preprocessing, enough to predict from
raw rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coterie.core.errors import InvalidInput
from coterie.core.files import digest, read_arrays, write_json, writing
from coterie.core.trees import named_leaves, with_leaves
from coterie.data.prepared import Prepared, inputs_of
from coterie.data.shape import ProblemShape, Task
from coterie.models.apply import outputs_of, outputs_of_each, probabilities
from coterie.models.base import Model, ModelSpec, get_model
from coterie.models.build import build_model
from coterie.models.exported.schema import schema_of
from coterie.models.mixture import mixture

FORMAT, VERSION = "coterie-model", 1
PARAMETERS, FACTS = "model.safetensors", "model.json"
PREPROCESSING, SCHEMA = "preprocessing.json", "schema.json"
FILES = (PARAMETERS, FACTS, PREPROCESSING, SCHEMA)

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Exported:
    """One model that can be used by itself."""

    spec: ModelSpec
    task: Task
    inputs: tuple[int, ...]
    """The shape of one sample, after preprocessing."""
    outputs: int
    parameters: Any
    prepared: Prepared | None = None
    """How raw rows become inputs; None: rows must be given as the training data were."""
    labels: tuple[str, ...] = ()
    target: str = ""
    client: str | None = None
    """Whose model it is; None: it belongs to nobody alone."""
    view: str = "personal"
    method: str = ""
    round: int = 0
    """The round of the run that it is of."""
    components: int = 0
    """Models of which it is a mixture; 0: it is one model."""
    scaling: str = ""
    """Without `prepared`: how the training data were scaled, in words."""

    @cached_property
    def model(self) -> Model:
        shape = ProblemShape(self.task, self.inputs, self.outputs, 1, 1)
        made = build_model(self.spec, shape)
        return mixture(made, self.components, self.task) if self.components else made

    @property
    def names(self) -> tuple[str, ...]:
        """The classes' names, or their numbers where they have none."""
        if self.task != "classification":
            return ()
        return self.labels or tuple(map(str, range(self.outputs)))

    def inputs_of(self, data: Any) -> Array:
        """A model's inputs of raw rows: a table, or arrays where there is no preprocessing."""
        if self.prepared is not None:
            return inputs_of(self.prepared, data)
        return arrays_as_inputs(data, self.inputs)

    def outputs_of(self, x: Array) -> Array:
        """What the model gives for inputs: (rows, outputs)."""
        return outputs_of(self.model, self.parameters, x, self.outputs)

    def write(self, folder: Path) -> None:
        """Write the model's files into a folder that is there."""
        with writing(folder / PARAMETERS) as temporary:
            save_file(named_leaves(self.parameters), temporary, metadata=self.short())
        preparation = None if self.prepared is None else self.prepared.to_config()
        write_json(
            folder / PREPROCESSING,
            {"prepared": preparation, "labels": list(self.labels), "scaling": self.scaling},
        )
        write_json(folder / SCHEMA, schema_of(self))
        write_json(
            folder / FACTS,
            {
                "format": FORMAT,
                "version": VERSION,
                "client": self.client,
                "view": self.view,
                "method": self.method,
                "round": self.round,
                "model": {"name": self.spec.name, "options": self.spec.to_config()},
                **({"components": self.components} if self.components else {}),
                "task": self.task,
                "inputs": list(self.inputs),
                "outputs": self.outputs,
                "target": self.target,
                "sha256": {name: digest(folder / name) for name in (PARAMETERS, PREPROCESSING)},
            },
        )

    def short(self) -> dict[str, str]:
        """For those who meet the safetensors file alone."""
        told = {"view": self.view, "method": self.method, "round": str(self.round)}
        return told | {"model": self.spec.name, "site": self.client or ""}


def read(folder: Path) -> Exported:
    """The model of a folder that `Exported.write` wrote; refuses one that was changed since."""
    facts = read_facts(folder)
    try:
        for name, expected in facts["sha256"].items():
            if digest(folder / name) != expected:
                raise InvalidInput(
                    f"{str(folder / name)!r} was changed or damaged since it was exported; export"
                    " the model again."
                )
        told = json.loads((folder / PREPROCESSING).read_text(encoding="utf-8"))
        arrays = load_file(folder / PARAMETERS)
        named = facts["model"]
        made = Exported(
            spec=get_model(named["name"], named["options"]),
            task=facts["task"],
            inputs=tuple(facts["inputs"]),
            outputs=facts["outputs"],
            parameters=None,
            prepared=None if told["prepared"] is None else Prepared.from_config(told["prepared"]),
            labels=tuple(told["labels"]),
            target=facts["target"],
            client=facts["client"],
            view=facts["view"],
            method=facts["method"],
            round=facts["round"],
            components=facts.get("components", 0),
            scaling=told["scaling"],
        )
        like = made.model.predictor(made.inputs)
        tree = with_leaves(like, arrays, f"the model in {str(folder)!r}")
        return dataclasses.replace(made, parameters=tree)
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"the exported model {str(folder)!r} cannot be read: {why}; export it again."
        ) from None


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an exported model."""
    return (folder / FACTS).is_file()


def read_facts(folder: Path) -> dict[str, Any]:
    """What model.json says; refuses other folders."""
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} does not exist.")
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(
            f"{str(folder)!r} is not the folder of an exported model: it has no {FACTS}; make one"
            " with: coterie export RUN --client NAME -o FOLDER"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{str(folder / FACTS)!r} cannot be read: {error}.") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InvalidInput(f"{str(folder / FACTS)!r} does not describe a model of coterie.")
    if facts.get("version") != VERSION:
        raise InvalidInput(
            f"the exported model {str(folder)!r} has version {facts.get('version')!r}, but this"
            f" coterie reads version {VERSION}."
        )
    return facts


def arrays_as_inputs(data: Any, inputs: tuple[int, ...]) -> Array:
    """Rows of numbers, or an .npz (x) or .npy file of them, for models without preprocessing."""
    if isinstance(data, (str, Path)):
        path = Path(data)
        if path.suffix not in (".npz", ".npy"):
            raise InvalidInput(
                f"{str(path)!r} is a table, but the model was not trained on one; give an .npz with"
                " x, or an .npy file."
            )
        found = read_arrays(path, "the file")
        if "x" not in found and "" not in found:
            raise InvalidInput(
                f"the file {str(path)!r} holds {', '.join(found) or 'nothing'}, but must hold x."
            )
        data = found.get("x", found.get(""))
    x = np.asarray(data)
    per_row = int(np.prod(inputs))
    if not np.issubdtype(x.dtype, np.number) or not x.ndim or x.size != len(x) * per_row:
        raise InvalidInput(
            f"the rows are of type {x.dtype} and shape {x.shape}, but must be numbers of shape"
            f" (rows, {', '.join(map(str, inputs))})."
        )
    x = x.reshape(len(x), *inputs)
    if not np.isfinite(x).all():
        raise InvalidInput("the rows hold NaN or infinity, but inputs must be finite numbers.")
    return x


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What models say about rows."""

    values: Array
    """The names of classes, or values in the target's own units."""
    probabilities: Array | None = None
    """(rows, classes)"""


def finished(like: Exported, outputs: Array, *, are_probabilities: bool = False) -> Predicted:
    """Outputs of a model as people want them."""
    if like.task == "classification":
        found = outputs if are_probabilities else probabilities(outputs)
        return Predicted(np.asarray(like.names)[outputs.argmax(1)], found)
    values = outputs if like.prepared is None else like.prepared.in_units(outputs)
    return Predicted(values[:, 0] if like.outputs == 1 else values)


def predict(exported: Exported, data: Any) -> Predicted:
    """What one model says about raw rows."""
    return finished(exported, exported.outputs_of(exported.inputs_of(data)))


def predict_each(
    several: Sequence[Exported], which: NDArray[np.integer[Any]], data: Any
) -> Predicted:
    """The same of several clients' models: `which[i]` is the place of the one for row i."""
    first = several[0]
    x = first.inputs_of(data)
    outputs = outputs_of_each(first.model, stacked(several), which, x, first.outputs)
    return finished(first, outputs)


def stacked(several: Sequence[Exported]) -> Any:
    """The parameters of several models along axis 0; refuses models that are not alike."""
    first = several[0]
    for other in several[1:]:
        alike = ("spec", "task", "inputs", "outputs", "prepared", "labels")
        odd = [name for name in alike if getattr(other, name) != getattr(first, name)]
        if odd:
            raise InvalidInput(
                f"the models of {first.client!r} and {other.client!r} differ in {odd[0]}; they must"
                " come from one run."
            )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(m.parameters for m in several))
