"""What a newcomer needs of a federation, as files: the method with its options, the hub's state, on
graphs the members' states, and the outline of the members' data. No training rows.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from coterie.core.errors import InvalidInput
from coterie.core.files import digest, write_json
from coterie.core.options import as_written
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule, read_rule
from coterie.data.outline import Outline, outline
from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Saved
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.models.base import Model, ModelSpec, get_model
from coterie.runs.contender import Contender, named
from coterie.runs.outlines import graph_arrays, graph_of, write_arrays

FACTS, ARRAYS = "newcomers.json", "newcomers.safetensors"
FORMAT, VERSION = "coterie-newcomers", 1
_HUB, _ROWS, _IDS, _OUTLINE = "hub/", "rows", "ids", "outline/"


@dataclasses.dataclass(frozen=True)
class Kit:
    """A simulator's state without anybody's rows; `simulator` gives one that takes in newcomers."""

    contender: Contender
    model: ModelSpec
    training: Training
    outline: Outline
    graph: Graph | GraphRule | None
    saved: Saved
    name: str = "newcomers"

    attack = None

    @property
    def method(self) -> Method:
        return self.contender.method

    @classmethod
    def of(cls, simulator: Simulator, method: Method, spec: ModelSpec) -> Kit:
        """The kit of a run; `method` and `spec` are as they were asked for."""
        sim = simulator
        members = outline(sim.everybody)
        if len(sim.held_out):
            subset = members.subset(sim.members)
            assert isinstance(subset, Outline)
            members = subset
        training = sim.training.replace(held_out=0, store="device", cohort=None, fraction=None)
        training = training.replace(keep="last", patience=None)
        everyone = np.arange(sim.spec.clients if isinstance(method, GraphMethod) else 0)
        dirty = sim.dirty.copy()
        saved = sim.state(everyone)
        sim.dirty = dirty  # looking changes nothing
        graph = sim.graph if sim.kinship is None else sim.kinship.rule
        return cls(Contender(method, sim.channel), spec, training, members, graph, saved)

    def simulator(self, model: Model | None = None) -> Simulator:
        """A simulator on the outline, at the state that was saved."""
        made = Simulator(
            self.contender.method,
            self.outline,
            self.model if model is None else model,
            self.training,
            self.graph,
            channel=self.contender.channel,
        )
        made.restore(self.saved)
        return made

    def to_config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values for JSON, and arrays."""
        plain, arrays = self.outline.to_config()
        made = {f"{_OUTLINE}{name}": value for name, value in arrays.items()}
        made |= {f"{_HUB}{name}": np.asarray(value) for name, value in self.saved.hub.items()}
        ((ids, rows),) = self.saved.rows
        made |= {_IDS: ids, _ROWS: rows}
        graph = None
        if isinstance(self.graph, GraphRule):
            graph = {"rule": {"name": self.graph.name, **self.graph.to_config()}}
        elif self.graph is not None:
            graph, found = graph_arrays(self.graph)
            made |= found
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.contender.to_config(),
            "model": {"name": self.model.name, **self.model.to_config()},
            "training": self.training.to_config(),
            "round": self.saved.t,
            "totals": self.saved.totals,
            "outline": plain,
            "graph": graph,
        }
        return facts, made

    @classmethod
    def from_config(cls, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Kit:
        """The inverse of `to_config`."""
        if facts.get("format") != FORMAT or facts.get("version") != VERSION:
            raise InvalidInput(
                f"the files for newcomers have version {facts.get('version')!r}, but this coterie"
                f" reads version {VERSION}."
            )
        under = lambda prefix: {
            name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)
        }
        members = Outline.from_config(facts["outline"], under(_OUTLINE))
        with as_written():
            contender = Contender.from_config(facts["method"])
            model = get_model(*named("model", facts["model"]))
            training = Training.from_config(facts["training"])
            told = facts["graph"] or {}
            graph: Graph | GraphRule | None
            if "rule" in told:
                graph = read_rule("graph.rule", told["rule"])
            else:
                graph = graph_of(facts["graph"], arrays, members.clients)
        rows = [(arrays[_IDS], arrays[_ROWS])]
        saved = Saved(facts["round"], under(_HUB), facts["totals"], rows)
        return cls(contender, model, training, members, graph, saved)

    def write(self, folder: Path) -> None:
        """Write it into a folder that is there."""
        facts, arrays = self.to_config()
        write_arrays(folder / ARRAYS, arrays)
        write_json(folder / FACTS, facts | {"sha256": digest(folder / ARRAYS)})


def is_kit(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def read_kit(folder: Path) -> Kit:
    """What `Kit.write` wrote."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if digest(folder / ARRAYS) != facts.pop("sha256"):
            raise ValueError(f"{ARRAYS} was changed or damaged")
        return Kit.from_config(facts, load_file(folder / ARRAYS))
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"the files for newcomers in {str(folder)!r} cannot be read: {why}; export them again."
        ) from None
