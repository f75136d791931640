"""What all trackers have in common: what they are told, and when."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np

from coterie.core import crew
from coterie.core.errors import InvalidInput, notice, unknown
from coterie.core.files import write_json
from coterie.engine.simulate import Simulator, Snapshot

TRACKERS = {
    "tensorboard": "event files in the run's folder, or in the folder that is named",
    "mlflow": "the tracking server or store that is named; else MLflow's own setting",
    "wandb": "Weights & Biases: files in the run's folder (offline), or =online",
}
"""By name: where it goes."""
MODES = {"wandb": ("offline", "online")}
"""Where WHERE is one of a few words."""
KEPT = "track.json"


class Place(NamedTuple):
    """Which run is told, and where to."""

    folder: Path
    name: str
    group: str
    where: str | None

    @property
    def known(self) -> dict[str, str]:
        """What trackers called this run before it was gone on with."""
        try:
            return dict(json.loads((self.folder / KEPT).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def remember(self, tracker: str, called: str) -> None:
        write_json(self.folder / KEPT, self.known | {tracker: called})


class Sink(Protocol):
    """Where a run is told; each library has one, in a module of its name."""

    def __init__(self, place: Place, config: dict[str, Any], step: int) -> None:
        """A run begins, or goes on, at a round."""

    def log(self, step: int, values: dict[str, float]) -> None: ...

    def close(self, *, failed: bool) -> None: ...


def flat(config: Any, head: str = "") -> dict[str, Any]:
    """Options without tables in tables.

    >>> flat({"method": {"name": "fedu", "eta": 0.1}, "seed": 0})
    {'method.name': 'fedu', 'method.eta': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{head}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def values_of(simulator: Simulator, snapshot: Snapshot) -> dict[str, float]:
    """The clients' mean value and loss by split (and by view, of those after the first), and what
    it has cost; what is not known is left out.
    """
    metric, found = simulator.metric, {}
    for split, scores in snapshot.scores.items():
        for i, view in enumerate(simulator.method.model_views):
            head = split if i == 0 else f"{split}/{view}"
            for name, values in (
                (metric.name, metric.value(scores.score[i])),
                ("loss", scores.loss[i]),
            ):
                if not np.isnan(values).all():
                    found[f"{head}/{name}"] = float(np.nanmean(values))
    return {
        **found,
        "bytes/up": float(snapshot.up),
        "bytes/down": float(snapshot.down),
        "gradients": float(snapshot.gradients),
    }


def config_of(simulator: Simulator) -> dict[str, Any]:
    """The options of a run, without tables in tables."""
    method = {"name": simulator.method.name, **simulator.method.to_config()}
    training = simulator.training.to_config()
    about = {"data": simulator.federation.name, "clients": simulator.federation.clients}
    return flat({**about, "method": method, "training": training})


class Tracking:
    """Called like any other progress; use it in a `with`, or close it.

    What goes wrong with a tracker is said once, and the run goes on without it.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name, self.place = name, place
        self.make = _sink(name)
        self.sink: Sink | None = None
        self.lost = False

    def __call__(self, simulator: Simulator, snapshot: Snapshot | None) -> None:
        if snapshot is None or self.lost:
            return
        with self._lose():
            if self.sink is None:
                self.sink = self.make(self.place, config_of(simulator), snapshot.round)
            self.sink.log(snapshot.round, values_of(simulator, snapshot))

    def close(self, *, failed: bool = False) -> None:
        if self.sink is not None and not self.lost:
            with self._lose():
                self.sink.close(failed=failed)
        self.sink = None

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    @contextlib.contextmanager
    def _lose(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each library has its own
            self.lost = True
            why = (str(error).splitlines() or [type(error).__name__])[0]
            notice(f"{self.name} is told nothing more of {self.place.name!r}: {why}")


def _sink(name: str) -> Any:
    """The class of a tracker; refuses one whose library is not there."""
    if name not in TRACKERS:
        raise unknown("the tracker", name, TRACKERS)
    try:
        return importlib.import_module(f"coterie.runs.tracking.to_{name}").Sink
    except ImportError as error:
        raise InvalidInput(
            f"the tracker {name!r} needs {error.name or name}, which is not installed; install it"
            " with: pip install 'coterie[track]'"
        ) from None


def tracker(
    name: str, folder: str | Path = ".", *, where: str | None = None, run: str = ""
) -> Tracking:
    """Tells a simulation to `name`: "tensorboard", "mlflow" or "wandb".

    Files go into `folder`; `where` is as on the command line, `run` is what the run is called
    (default: the folder's name).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return Tracking(name, Place(folder, run or folder.resolve().name, "", where))


_wanted: list[str] = []


def use(specs: Sequence[str]) -> None:
    """From now on, every run that is written to a folder is told to these: NAME or NAME=WHERE."""
    for spec in specs:
        name, _, where = spec.partition("=")
        _sink(name)
        if where and where not in MODES.get(name, (where,)):
            raise unknown(f"the place for {name}", where, MODES[name])
    _wanted[:] = list(dict.fromkeys(specs))


def wanted() -> list[str]:
    return list(_wanted)


def _place(folder: Path, where: str | None) -> Place:
    """A run of a command is called by its place among the command's runs."""
    parts = folder.resolve().parts
    if "runs" in parts[:-1]:
        at = len(parts) - 1 - parts[::-1].index("runs")
        if at and (Path(*parts[:at]) / "config.toml").is_file():
            return Place(folder, "/".join(parts[at + 1 :]), parts[at - 1], where)
    return Place(folder, folder.resolve().name, "", where)


@contextlib.contextmanager
def following(folder: Path) -> Iterator[list[Tracking]]:
    """The trackers of the run of a folder; of several processes only the first tells."""
    specs = _wanted if crew.leads() else []
    made = []
    for spec in specs:
        name, _, where = spec.partition("=")
        made.append(Tracking(name, _place(folder, where or None)))
    try:
        yield made
    except BaseException:
        for one in made:
            one.close(failed=True)
        raise
    for one in made:
        one.close()
