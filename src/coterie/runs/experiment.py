"""An experiment: data, model, graph, training and one or several methods, validated field by field
from TOML.

name = "digits"
[data]
name = "digits"
clients = 20
[model]
name = "mlr"
[graph]
kind = "similar"
[training]
rounds = 100
[method]            # or several [[methods]] for `coterie compare`
name = "fedu"
eta = 0.01
[channel]           # what messages go through; a method may have its own:
name = "plain"      # channel = "delta", or a table with options
[network]           # optional: what the rounds would take on real machines (network/options.py)
latency = 0.04
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from coterie.adversary import Attack, get_attack
from coterie.channel import PLAIN, get_channel
from coterie.core.errors import InvalidInput, unknown
from coterie.core.toml import tables
from coterie.data.base import Source, get_source
from coterie.data.digest import hash_federation
from coterie.data.federation import Federation
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.models.base import ModelSpec, get_model
from coterie.network import Network
from coterie.runs.contender import Contender, named
from coterie.runs.graph_options import GraphOptions
from coterie.runs.tuning.options import Tuning

LARGEST_FILE = 1 << 24
"""Bytes of a TOML file that is read at all."""
SECTIONS = (
    "name",
    "data",
    "model",
    "graph",
    "training",
    "channel",
    "attack",
    "network",
    "method",
    "methods",
    "seeds",
    "resplit",
    "protocol",
    "tune",
)
PROTOCOLS = ("standard", "paper")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that decides a result. `to_config` and `from_config` are inverses."""

    data: Source
    model: ModelSpec
    contenders: tuple[Contender, ...]
    training: Training = dataclasses.field(default_factory=lambda: Training())
    graph: GraphOptions = dataclasses.field(default_factory=lambda: GraphOptions())
    data_seed: int = 0
    seeds: tuple[int, ...] = ()
    resplit: bool = False
    """Each seed also draws its own split of the data (the same for all methods); otherwise all
    seeds share that of data.seed.
    """
    protocol: str = "standard"
    """"paper": reports show the best round on test data beside the round that counts."""
    tune: Tuning | None = None
    """How `coterie tune` tunes it; without effect on runs."""
    name: str = "experiment"
    attack: Attack | None = None
    network: Network | None = None

    @property
    def methods(self) -> tuple[Method, ...]:
        return tuple(c.method for c in self.contenders)

    @property
    def method(self) -> Method:
        return self.contender.method

    @property
    def contender(self) -> Contender:
        """The only method of the experiment, and its channel."""
        if len(self.contenders) != 1:
            raise InvalidInput(
                f"the experiment has {len(self.contenders)} methods, but `coterie run` takes"
                " exactly 1; use `coterie compare` for several."
            )
        return self.contenders[0]

    def refuse_several(self) -> None:
        """Refuse what only a comparison takes."""
        if self.seeds or self.resplit:
            what = f"seeds is {list(self.seeds)}" if self.seeds else "resplit is true"
            raise InvalidInput(
                f"{what}, but `coterie run` does a single run, with training.seed and data.seed;"
                " leave it out, or use `coterie compare`."
            )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Experiment:
        for key in config:
            if key not in SECTIONS:
                raise unknown("the section", key, SECTIONS)
        if "data" not in config:
            raise InvalidInput(
                "the experiment lacks the section [data], which names the federation, e.g. name ="
                ' "digits".'
            )
        data_name, data_options = named("data", config["data"])
        data_seed = data_options.pop("seed", 0)
        if isinstance(data_seed, bool) or not isinstance(data_seed, int) or data_seed < 0:
            raise InvalidInput(f"data.seed is {data_seed!r}, but must be a whole number ≥ 0.")
        source = get_source(data_name, data_options)
        model_name, model_options = named(
            "model", config.get("model", "linear" if data_name == "linear" else "mlr")
        )
        if "method" in config and "methods" in config:
            raise InvalidInput(
                "the experiment has both [method] and [[methods]]; give one of them."
            )
        listed = config.get("methods", [config["method"]] if "method" in config else [])
        if not isinstance(listed, list):
            raise InvalidInput("methods must be a list of names or [[methods]] tables.")
        channel = (
            get_channel(*named("channel", config["channel"])) if "channel" in config else PLAIN
        )
        contenders = tuple(Contender.from_config(m, channel) for m in listed)
        seeds = config.get("seeds", [])
        if not isinstance(seeds, list) or any(
            isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in seeds
        ):
            raise InvalidInput(f"seeds is {seeds!r}, but must be a list of whole numbers ≥ 0.")
        if len(set(seeds)) < len(seeds):
            raise InvalidInput(f"seeds is {seeds!r}, but must name each seed once.")
        resplit = config.get("resplit", False)
        if not isinstance(resplit, bool):
            raise InvalidInput(f"resplit is {resplit!r}, but must be true or false.")
        protocol = config.get("protocol", "standard")
        if protocol not in PROTOCOLS:
            raise unknown("the protocol", protocol, PROTOCOLS)
        for section in ("training", "graph", "network"):
            if not isinstance(config.get(section, {}), dict):
                raise InvalidInput(f"{section} is {config[section]!r}, but must be a table.")
        name = config.get("name", "experiment")
        if not isinstance(name, str):
            raise InvalidInput(f"name is {name!r}, but must be a string.")
        return cls(
            data=source,
            model=get_model(model_name, model_options),
            contenders=contenders,
            training=Training.from_config(config.get("training", {})),
            graph=GraphOptions.from_config(config.get("graph", {})),
            data_seed=data_seed,
            seeds=tuple(seeds),
            resplit=resplit,
            protocol=protocol,
            tune=Tuning.from_config(config["tune"]) if "tune" in config else None,
            name=name,
            attack=get_attack(*named("attack", config["attack"])) if "attack" in config else None,
            network=Network.from_config(config["network"]) if "network" in config else None,
        )

    @classmethod
    def from_file(cls, path: Path) -> Experiment:
        return cls.from_config(cls.read(path))

    @staticmethod
    def read(path: Path, what: str = "experiment") -> dict[str, Any]:
        """The tables of a TOML file."""
        whose = f"the {what} file {str(path)!r}"
        try:
            with path.open("rb") as f:
                data = f.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            raise InvalidInput(f"{whose} does not exist.") from None
        except OSError as error:
            raise InvalidInput(f"{whose} cannot be read: {error}.") from None
        if len(data) > LARGEST_FILE:
            raise InvalidInput(f"{whose} has more than {LARGEST_FILE} bytes.")
        return tables(data, whose)

    def to_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": self.name,
            "data": {"name": self.data.name, "seed": self.data_seed, **self.data.to_config()},
            "model": {"name": self.model.name, **self.model.to_config()},
            "graph": self.graph.to_config(),
            "training": self.training.to_config(),
        }
        tables = [c.written() for c in self.contenders]
        if len(tables) == 1:
            config["method"] = tables[0]
        elif tables:
            config["methods"] = tables
        if self.attack is not None:
            config["attack"] = {"name": self.attack.name, **self.attack.to_config()}
        if self.network is not None:
            config["network"] = self.network.to_config()
        if self.seeds:
            config["seeds"] = list(self.seeds)
        if self.resplit:
            config["resplit"] = True
        if self.protocol != "standard":
            config["protocol"] = self.protocol
        if self.tune is not None:
            config["tune"] = self.tune.to_config()
        return config

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_config())

    def fingerprint(self) -> str:
        """Changes with anything that may change the result."""
        return hashlib.sha256(json.dumps(self.to_config(), sort_keys=True).encode()).hexdigest()

    def federation(self) -> Federation:
        """The data; kept in memory, since the runs of a comparison share it."""
        return _loaded(self.data, self.data_seed, _changed(self.data))

    def data_hash(self) -> str:
        """The hash of the data, worked out once per federation."""
        return _hashed(self.data, self.data_seed, _changed(self.data))

    def graph_of(self, contender: Contender) -> GraphOptions:
        """The graph of a method: its own, or that of the experiment."""
        return self.graph if contender.graph is None else contender.graph

    def single(self, contender: Contender, seed: int) -> Experiment:
        """The experiment of one method at one seed."""
        data_seed = self.data_seed + seed if self.resplit else self.data_seed
        training = self.training.replace(seed=seed)
        return dataclasses.replace(
            self,
            contenders=(contender._replace(graph=None),),
            graph=self.graph_of(contender),
            seeds=(),
            resplit=False,
            protocol="standard",
            tune=None,
            data_seed=data_seed,
            training=training,
        )

    def with_(self, **changes: Any) -> Experiment:
        return dataclasses.replace(self, **changes)


def _changed(source: Source) -> int:
    """When somebody's own table, or one of a folder's tables, was last written."""
    path = Path(getattr(source, "path", "") or "-")
    if not path.exists():
        return 0
    files = [path, *(path.iterdir() if path.is_dir() else ())]
    return max(file.stat().st_mtime_ns for file in files)


@lru_cache(maxsize=64)
def _hashed(source: Source, seed: int, changed: int) -> str:
    return hash_federation(_loaded(source, seed, changed))


@lru_cache(maxsize=4)
def _loaded(source: Source, seed: int, changed: int) -> Federation:
    return source.load(seed)


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Which fields differ between two configs, for the error that refuses to resume."""
    out = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            out += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            out.append(f"{prefix}{key} was {a!r} and is now {b!r}")
    return out
