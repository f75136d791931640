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
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput, shown, unknown
from coterie.core.options import Options, check_rounds, option, traced_dataclass
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule, read_rule
from coterie.data.shape import ProblemShape
from coterie.deploy.plan_graph import LEARN, check_learnt, graph_of
from coterie.deploy.plan_limits import check_numbers, check_sizes
from coterie.deploy.problem import Problem
from coterie.engine import budget
from coterie.engine.check import check
from coterie.engine.exchange import exchange_of
from coterie.engine.pace import Pace, pace_of
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod
from coterie.models.base import Model, ModelSpec, get_model
from coterie.models.build import build_model
from coterie.runs.contender import Contender, named
from coterie.runs.experiment import Experiment

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
    "samples",
)
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


def check_samples(samples: Any, clients: tuple[str, ...] | int) -> None:
    """A table of names and whole numbers."""
    if not isinstance(samples, dict):
        raise InvalidInput(f"samples is {shown(samples)}, but must be a table: ward-a = 1200, ….")
    for name, most in samples.items():
        known = () if isinstance(clients, int) else clients
        if name not in known:
            raise unknown("in samples the client", name, known)
        if isinstance(most, bool) or not isinstance(most, int) or not 0 < most < 1 << 40:
            raise InvalidInput(
                f"samples.{name} is {shown(most)}, but must be a whole number from 1 to 2^40."
            )


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
    samples: dict[str, int] = dataclasses.field(default_factory=dict)
    """The most training samples that a client may count for, by name, where that is agreed on."""

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
        if not exchange_of(self.method).sends:
            raise InvalidInput(
                f"the method is {self.method.name!r}, but that exchanges no messages; a real"
                " federation needs a star or graph method."
            )
        if self.training.held_out:
            raise InvalidInput(
                "training.held_out belongs to simulations; in a real federation a newcomer simply"
                " joins a new plan."
            )
        if not self.training.plain:
            what = 'keep = "best"' if self.training.keep == "best" else "patience"
            raise InvalidInput(
                f"training.{what} belongs to simulations: in a real federation nobody sees the"
                " validation data of all clients."
            )
        if self.training.batch_schedule is not None and self.training.sampling == "full":
            raise InvalidInput(
                "training.batch_schedule has no meaning with training.sampling = 'full'."
            )
        check(self.method, self.channel, self.cohort, self.size)
        if isinstance(self.method, StarMethod) and self.method.addressed and self.channel.down:
            raise InvalidInput(
                f"channel.down is true, but {self.method.name} tells each client something of its"
                " own, which is not compressed in deployments."
            )
        if not self.peers and isinstance(self.clients, int):
            raise InvalidInput(
                f"clients is {self.clients}, but a hub must know its clients: give the list of"
                " their names."
            )
        check_samples(self.samples, self.clients)
        check_rounds(self.method, self.training.rounds)
        self.method.check_deployed()
        check_learnt(self)
        coupling = self.coupling  # refuses a wrong graph now and not in the first round
        share = self.cohort / self.size
        rounds, parameters = self.training.rounds, self.built().parameters()
        check_sizes(rounds, parameters)
        costs = budget.Run(parameters, rounds, share, self.size, coupling)
        method, channel = budget.settle(self.method, self.channel, costs)
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "channel", channel)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Plan:
        for key in config:
            if key not in SECTIONS:
                raise unknown("the section", key, SECTIONS)
        check_numbers(config)
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
            samples=config.get("samples", {}),
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
        more = {"graph": self.graph, "samples": self.samples}
        return config | {key: table for key, table in more.items() if table}

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_config())

    def with_(self, **changes: Any) -> Plan:
        return dataclasses.replace(self, **changes)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that all must agree on; for peers, who each know a part of the
        federation, without names and graph (unless they are to find it).
        """
        config = self.to_config()
        if self.peers and self.rule is None:
            config["clients"] = self.size
            config.pop("graph", None)
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def peers(self) -> bool:
        """True for methods without a hub."""
        return isinstance(self.method, GraphMethod) and not self.method.hub_between

    @property
    def size(self) -> int:
        """N."""
        return self.clients if isinstance(self.clients, int) else len(self.clients)

    @property
    def cohort(self) -> int:
        return self.training.cohort_size(self.shape)

    def number(self, client: str) -> int:
        """A client's number, by which it draws its randomness."""
        if client not in self._numbers:
            raise unknown("the client", client, self._numbers)
        return self._numbers[client]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """By name, where there are names; looked up for every edge of a graph."""
        return {} if isinstance(self.clients, int) else {n: k for k, n in enumerate(self.clients)}

    @property
    def shape(self) -> ProblemShape:
        """What models and messages look like; of samples a client puts its own number there."""
        return self.problem.shape(self.size)

    @cached_property
    def pace(self) -> Pace | None:
        """The rounds in which clients work, where that is not all."""
        return pace_of(self.method, self.training.rounds, self.alone)

    @property
    def alone(self) -> int:
        """Rounds in which clients train by themselves, because there is no graph yet."""
        return 0 if self.rule is None else min(self.rule.after, self.training.rounds)

    @property
    def exchanges(self) -> int:
        """How many rounds there is work in. Participants count these; `at` gives the round."""
        return self.training.rounds if self.pace is None else len(self.pace.rounds)

    def at(self, i: int) -> int:
        """The round of the i-th with work; after the last, the number of rounds."""
        if self.pace is None:
            return i
        return int(self.pace.rounds[i]) if i < self.exchanges else self.training.rounds

    def since(self, i: int) -> range:
        """The rounds from the one before on, without it, to the i-th with work."""
        return range(self.at(i - 1) + 1 if i else 0, self.at(i) + 1)

    def evaluates(self, i: int) -> bool:
        """Whether models are scored before the i-th round with work."""
        return any(t % self.training.eval_every == 0 for t in self.since(i))

    def built(self) -> Model:
        return self.method.modelled(build_model(self.model, self.shape), self.shape)

    @cached_property
    def rule(self) -> GraphRule | None:
        """What makes the client graph, where it is to be learnt: kind = "learn" and a rule."""
        if not isinstance(self.method, GraphMethod) or self.graph.get("kind") != LEARN:
            return None
        for key in self.graph:
            if key not in ("kind", "rule"):
                raise unknown("the option of graph,", key, ("kind", "rule"))
        return read_rule("graph.rule", self.graph.get("rule", "kin"))

    @cached_property
    def coupling(self) -> Graph | GraphRule | None:
        """The client graph, where the plan has it: of a kind that needs no data, or edges by name:
        edges = [["ward-a", "ward-b", 1.0], …]; or the rule that makes it.
        """
        if not self.method.couples or (self.peers and not self.graph):
            return None
        if self.rule is not None:
            return self.rule
        return graph_of(self)
