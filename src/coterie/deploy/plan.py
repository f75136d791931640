"""What all participants of a real federation agree on before the first round: one TOML file that
every machine has a copy of.

name = "wards"
clients = ["ward-a", "ward-b", "ward-c"]     # in this order: numbers 0, 1, 2. Peers may give only
how many there are.

[problem]
task = "classification"
inputs = [2]
labels = ["no", "yes"]

[model]
name = "mlr"

[training]
rounds = 50

[method]
name = "fedu"

[rules]
on_missing = "wait"

Messages carry the plan's fingerprint, so that nobody ever works with somebody who has another plan.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import tomli_w

from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput, unknown
from coterie.core.options import Options, option, traced_dataclass
from coterie.coupling import graph as graphs
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation, Split, Task
from coterie.data.scaling import Scaling
from coterie.data.shape import ProblemShape
from coterie.data.tables import Prepared
from coterie.engine.simulate import build_model
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.models.base import Model, ModelSpec, get_model
from coterie.runs.experiment import Contender, Experiment, named

SECTIONS = (
    "name",
    "clients",
    "problem",
    "model",
    "training",
    "method",
    "channel",
    "graph",
    "rules",
)
GRAPHS = ("complete", "ring", "star", "equal", "random-graph", "random")
"""Kinds that need nobody's data."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@traced_dataclass
class Rules(Options):
    """What is done when somebody is silent."""

    name: ClassVar[str] = "rules"

    on_missing: str = option(
        "wait",
        "when somebody is silent: wait for them (exact), or go on without",
        choices=("wait", "go-on"),
    )
    patience: float = option(
        60.0, "seconds before somebody counts as silent in a round", above=0, static=True
    )
    give_up: float = option(
        3600.0,
        'seconds of waiting, with "wait", before the run stops (it can be resumed)',
        above=0,
        static=True,
    )
    at_least: float = option(
        0.5,
        'hub, "go-on": the share of a round\'s clients that must answer',
        above=0,
        high=1,
        static=True,
    )
    staleness: int = option(
        3,
        'peers, "go-on": rounds that a silent neighbour counts with its last message before its'
        " edge is dropped",
        low=0,
    )


@dataclasses.dataclass(frozen=True)
class Problem:
    """What the models are for: shapes, names of labels, and how a client's table becomes inputs.

    Describes a federation where there is none.
    """

    task: Task
    inputs: tuple[int, ...]
    labels: tuple[str, ...] = ()
    targets: int = 1
    """Regression: numbers to predict."""
    features: tuple[str, ...] = ()
    """Names of the inputs, `column` or `column=category`; needed only to read tables."""
    target: str = ""
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    """x ↦ (x − mean) / scale, the same for everybody; nothing: each client scales by its own
    training rows.
    """

    KEYS: ClassVar[tuple[str, ...]] = (
        "task",
        "inputs",
        "labels",
        "targets",
        "features",
        "target",
        "mean",
        "scale",
    )

    @classmethod
    def from_config(cls, given: Any) -> Problem:
        if not isinstance(given, dict):
            raise InvalidInput(
                f"problem is {given!r}, but must be a table with task, inputs and labels."
            )
        for key in given:
            if key not in cls.KEYS:
                raise unknown("the option of problem,", key, cls.KEYS)
        task = given.get("task", "classification")
        if task not in ("classification", "regression"):
            raise InvalidInput(
                f"problem.task is {task!r}, but must be 'classification' or 'regression'."
            )
        features = tuple(map(str, _list(given, "features", str)))
        inputs = tuple(_list(given, "inputs", int)) or ((len(features),) if features else ())
        if not inputs or any(i < 1 for i in inputs):
            raise InvalidInput(
                f"problem.inputs is {list(inputs)!r}, but must be the shape of a sample, whole"
                " numbers ≥ 1, or features must be given."
            )
        if features and inputs != (len(features),):
            raise InvalidInput(
                f"problem.inputs is {list(inputs)!r}, but there are {len(features)} features."
            )
        labels = given.get("labels", [])
        if isinstance(labels, int) and not isinstance(labels, bool):
            labels = [str(i) for i in range(labels)]
        if not isinstance(labels, list) or (
            task == "classification" and len(set(map(str, labels))) < 2
        ):
            raise InvalidInput(
                f"problem.labels is {labels!r}, but must be the list of all classes (or how many"
                " there are), at least 2 different ones."
            )
        targets = given.get("targets", 1)
        if not isinstance(targets, int) or targets < 1:
            raise InvalidInput(f"problem.targets is {targets!r}, but must be a whole number ≥ 1.")
        scaling = [
            tuple(map(float, _list(given, key, (int, float)))) or None for key in ("mean", "scale")
        ]
        for key, values in zip(("mean", "scale"), scaling, strict=True):
            if values is not None and len(values) != int(np.prod(inputs)):
                raise InvalidInput(
                    f"problem.{key} has {len(values)} numbers, but there are {int(np.prod(inputs))}"
                    " inputs."
                )
        if (scaling[0] is None) != (scaling[1] is None):
            raise InvalidInput(
                "problem.mean and problem.scale belong together; give both or neither."
            )
        if scaling[1] is not None and not all(s > 0 for s in scaling[1]):
            raise InvalidInput("problem.scale holds a number that is not > 0.")
        return cls(
            task,
            inputs,
            tuple(map(str, labels)),
            targets,
            features,
            str(given.get("target", "")),
            *scaling,
        )

    def to_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"task": self.task, "inputs": list(self.inputs)}
        if self.task == "classification":
            config["labels"] = list(self.labels)
        else:
            config["targets"] = self.targets
        optional = {
            "features": list(self.features),
            "target": self.target,
            "mean": list(self.mean or ()),
            "scale": list(self.scale or ()),
        }
        return config | {key: value for key, value in optional.items() if value}

    @classmethod
    def of(cls, federation: Federation) -> Problem:
        """The problem that a federation poses, for a plan made from it.

        Its data is taken as it is, without further scaling.
        """
        labels = tuple(map(str, federation.facts.get("labels") or range(federation.classes)))
        return cls(
            federation.task,
            tuple(federation.input_shape),
            labels if federation.task == "classification" else (),
            federation.outputs,
        )

    @property
    def outputs(self) -> int:
        return len(self.labels) if self.task == "classification" else self.targets

    # What `newcomers_from_table` asks of a federation:

    @property
    def name(self) -> str:
        return "the plan"

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def facts(self) -> dict[str, Any]:
        columns = tuple(dict.fromkeys(f.partition("=")[0] for f in self.features))
        quantity = np.array(["=" not in f for f in self.features])
        mean = np.array(
            self.mean if self.mean is not None else [0.0] * len(self.features), np.float64
        )
        scaling = None if self.scale is None else Scaling(mean, np.array(self.scale, np.float64))
        known: dict[str, Any] = {
            "features": list(self.features),
            "target": self.target,
            "labels": list(self.labels),
        }
        return (
            known | {"prepared": Prepared(columns, quantity, mean, scaling)}
            if self.features
            else known
        )

    def sample(self) -> Federation:
        """One client with one made-up sample, for whoever needs shapes but has no data (a hub)."""
        y = (
            np.zeros(1, np.int32)
            if self.task == "classification"
            else np.zeros((1, self.targets) if self.targets > 1 else 1, np.float32)
        )
        one = Split(np.zeros((1, *self.inputs), np.float32), y, np.array([0, 1]))
        none = Split(one.x[:0], y[:0], np.array([0, 0]))
        return Federation("nobody's", one, none, none, self.task, self.classes)


def _list(given: dict[str, Any], key: str, kind: Any) -> list[Any]:
    values = given.get(key, [])
    if not isinstance(values, list) or not all(
        isinstance(v, kind) and not isinstance(v, bool) for v in values
    ):
        raise InvalidInput(f"problem.{key} is {values!r}, but must be a list.")
    return values


@dataclasses.dataclass(frozen=True)
class Plan:
    """The agreement. `to_config` and `from_config` are inverses."""

    name: str
    clients: tuple[str, ...] | int
    problem: Problem
    model: ModelSpec
    training: Training
    method: Method
    channel: Channel = PLAIN
    graph: dict[str, Any] = dataclasses.field(default_factory=dict)
    rules: Rules = dataclasses.field(default_factory=Rules)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidInput(
                f"name is {self.name!r}, but must be lower-case letters, digits and dashes, at"
                " most 63."
            )
        if isinstance(self.clients, int):
            if self.clients < 1:
                raise InvalidInput(f"clients is {self.clients}, but must be at least 1.")
        else:
            wrong = [c for c in self.clients if not NAME.fullmatch(c)]
            if wrong or not self.clients:
                raise InvalidInput(
                    f"clients holds {wrong[0] if wrong else 'nobody'!r}, but must be names of"
                    " lower-case letters, digits and dashes, at most 63."
                )
            if len(set(self.clients)) != len(self.clients):
                twice = next(c for c in self.clients if list(self.clients).count(c) > 1)
                raise InvalidInput(
                    f"clients names {twice!r} twice; every client needs a name of its own."
                )
        if self.method.exchange not in ("star", "graph"):
            raise InvalidInput(
                f"the method is {self.method.name!r}, but that exchanges no messages; a real"
                " federation needs a star or graph method."
            )
        if self.training.held_out:
            raise InvalidInput(
                "training.held_out belongs to simulations; in a real federation a newcomer simply"
                " joins a new plan."
            )
        if self.training.batch_schedule is not None and self.training.sampling == "full":
            raise InvalidInput(
                "training.batch_schedule has no meaning with training.sampling = 'full'."
            )
        if self.method.needs_exact and not self.channel.lossless:
            raise InvalidInput(
                f"the channel is {self.channel.name!r}, but {self.method.name} needs its messages"
                ' as they are: it must be "plain".'
            )
        if self.method.addressed and self.channel.down:
            raise InvalidInput(
                f"channel.down is true, but {self.method.name} tells each client something of its"
                " own, which is not compressed in deployments."
            )
        over_copies = self.method.exchange == "graph" or self.channel.down
        if over_copies and not self.channel.contracts():
            raise InvalidInput(
                f"the channel {self.channel.name!r} may send more error than there was to send;"
                " make it finer, or choose another."
            )
        if not self.peers and isinstance(self.clients, int):
            raise InvalidInput(
                f"clients is {self.clients}, but a hub must know its clients: give the list of"
                " their names."
            )
        if (
            self.method.exchange == "graph"
            and not self.method.hub_between
            and self.cohort < self.size
        ):
            raise InvalidInput(
                f"training.cohort is {self.cohort}, but {self.method.name} has no hub that could"
                " sample clients; leave it out."
            )
        self.coupling  # noqa: B018 - refuses a wrong graph now and not in the first round

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Plan:
        for key in config:
            if key not in SECTIONS:
                raise unknown("the section", key, SECTIONS)
        for key in ("name", "clients", "problem", "method"):
            if key not in config:
                raise InvalidInput(f"the plan lacks {key!r}.")
        clients = config["clients"]
        if isinstance(clients, list) and all(isinstance(c, str) for c in clients):
            clients = tuple(clients)
        elif not isinstance(clients, int) or isinstance(clients, bool):
            raise InvalidInput(
                f"clients is {clients!r}, but must be a list of names (or, for peers, how many"
                " there are)."
            )
        if not isinstance(config["name"], str):
            raise InvalidInput(f"name is {config['name']!r}, but must be a string.")
        channel = get_channel(*named("channel", config.get("channel", "plain")))
        contender = Contender.from_config(config["method"], channel)
        graph = config.get("graph", {})
        if not isinstance(graph, dict):
            raise InvalidInput(f"graph is {graph!r}, but must be a table.")
        return cls(
            name=config["name"],
            clients=clients,
            problem=Problem.from_config(config["problem"]),
            model=get_model(*named("model", config.get("model", "mlr"))),
            training=Training.from_config(config.get("training", {})),
            method=contender.method,
            channel=contender.channel,
            graph=dict(graph),
            rules=Rules.from_config(config.get("rules", {})),
        )

    @classmethod
    def from_file(cls, path: Path) -> Plan:
        try:
            return cls.from_config(Experiment.read(path, "plan"))
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    def to_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": self.name,
            "clients": list(self.clients) if not isinstance(self.clients, int) else self.clients,
            "problem": self.problem.to_config(),
            "model": {"name": self.model.name, **self.model.to_config()},
            "training": self.training.to_config(),
            "method": {"name": self.method.name, **self.method.to_config()},
            "channel": {"name": self.channel.name, **self.channel.to_config()},
            "rules": self.rules.to_config(),
        }
        return config | {"graph": self.graph} if self.graph else config

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_config())

    def with_(self, **changes: Any) -> Plan:
        return dataclasses.replace(self, **changes)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that all must agree on; for peers, who each know a part of the
        federation, without names and graph.
        """
        config = self.to_config()
        if self.peers:
            config["clients"] = self.size
            config.pop("graph", None)
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def peers(self) -> bool:
        """True for methods without a hub."""
        return self.method.exchange == "graph" and not self.method.hub_between

    @property
    def size(self) -> int:
        """N."""
        return self.clients if isinstance(self.clients, int) else len(self.clients)

    @property
    def cohort(self) -> int:
        return self.training.cohort_size(cast(Any, _Sized(self.size)))

    def number(self, client: str) -> int:
        """A client's number, by which it draws its randomness."""
        names: Sequence[str] = () if isinstance(self.clients, int) else self.clients
        if client not in names:
            raise unknown("the client", client, names)
        return list(names).index(client)

    def facts(self, largest: int) -> ProblemShape:
        return ProblemShape(self.size, largest, self.problem.outputs, self.problem.task)

    def built(self) -> Model:
        return build_model(self.model, self.problem.sample())

    @cached_property
    def coupling(self) -> Graph | None:
        """The client graph, where the plan has it: of a kind that needs no data, or edges by name:
        edges = [["ward-a", "ward-b", 1.0], …].
        """
        if self.method.exchange != "graph" or (self.peers and not self.graph):
            return None
        given = dict(self.graph)
        edges = given.pop("edges", None)
        if edges is None:
            kind = given.pop("kind", "complete")
            if kind not in GRAPHS:
                raise unknown("graph.kind", kind, (*GRAPHS, "edges"))
            for key in given:
                if key not in ("weight", "probability", "seed"):
                    raise unknown(
                        "the option of graph,",
                        key,
                        ("kind", "weight", "probability", "seed", "edges"),
                    )
            try:
                return graphs.build(kind, cast(Federation, _Sized(self.size)), **given)
            except (TypeError, ValueError) as error:
                raise (
                    error
                    if isinstance(error, InvalidInput)
                    else InvalidInput(f"graph is {self.graph!r}: {error}.")
                ) from None
        if given:
            raise unknown("the option of graph,", next(iter(given)), ("edges",))
        weights = np.zeros((self.size, self.size))
        for edge in edges if isinstance(edges, list) else [edges]:
            if not isinstance(edge, list) or len(edge) not in (2, 3):
                raise InvalidInput(
                    f"graph.edges holds {edge!r}, but every edge must be [client, client] or"
                    " [client, client, weight]."
                )
            k, l = (self.number(str(end)) for end in edge[:2])
            if k == l:
                raise InvalidInput(
                    f"graph.edges holds {edge!r}, but an edge joins two different clients."
                )
            weight = edge[2] if len(edge) == 3 else 1.0
            if not isinstance(weight, (int, float)) or not weight > 0:
                raise InvalidInput(
                    f"graph.edges holds {edge!r}, but its weight must be a number > 0."
                )
            weights[k, l] = weights[l, k] = weight
        return graphs.from_matrix(weights, "edges")


@dataclasses.dataclass(frozen=True)
class _Sized:
    """As much of a federation as the graphs of `GRAPHS` and a cohort's size ask for."""

    clients: int
    task: str = "classification"
