"""Methods under attack: a grid of methods × attacks × share of malicious clients × seeds, in
one resumable folder.

Scores are over honest clients. Local is there too, untouched by any attack on messages, on the
same honest clients: what training alone gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack, draw_malicious, get_attack
from coterie.core.errors import InvalidInput
from coterie.core.files import make_folder, write_text
from coterie.core.metrics import metric_of
from coterie.data.federation import warn_without_test
from coterie.engine.exchange import exchange_of
from coterie.report.attacked import Cell, Grid
from coterie.report.counted import which_round
from coterie.report.outcome import Outcome
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.compare import slugs, with_locals
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Begin, Planned, ended_outcomes, run_all
from coterie.runs.reporting import write_attack_report
from coterie.runs.watching.live import planned

ATTACKED = ("same-value", "sign-flip", "gaussian", "random-labels")
FRACTIONS = (0.0, 0.1, 0.2, 0.5, 0.8)
"""Of the lp-proj paper, and nobody."""


def who_lies(experiment: Experiment, seed: int, fraction: float) -> NDArray[np.bool_]:
    """Who lies among all clients: drawn among those that train, as in the runs."""
    federation = experiment.federation()
    members, _ = experiment.training.hold_out(federation)
    malicious = np.zeros(federation.clients, bool)
    malicious[members] = draw_malicious(seed, len(members), fraction)
    return malicious


def chosen_attacks(
    names: Sequence[str] | None, fractions: Sequence[float] | None
) -> tuple[list[Attack], list[float]]:
    """Attacks by name and shares of malicious clients; nothing: the usual ones."""
    wanted = [get_attack(name) for name in names or ATTACKED]
    shares = list(fractions or FRACTIONS)
    for share in shares:
        wanted[0].replace(fraction=share)  # refuses what is no share
    return wanted, shares


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InvalidInput(f"{what} {name} is given twice; give it once.")


class Assault(NamedTuple):
    """A grid of attacks, and a run for each of its cells at every seed; one without attack serves
    all attacks.
    """

    experiment: Experiment
    attacks: list[Attack]
    fractions: list[float]
    labels: list[str]
    cells: list[tuple[str, str, float]]
    """Method, attack and share of malicious clients, in the order of the plan."""
    plan: list[Planned]

    @property
    def seeds(self) -> list[int]:
        return list(self.experiment.seeds or (self.experiment.training.seed,))

    def recipe(self) -> dict[str, Any]:
        """What it takes besides the experiment to have this grid again."""
        attacks = [{"name": a.name, **a.to_config()} for a in self.attacks]
        return {"attacks": attacks, "fractions": self.fractions}

    def read(self) -> Grid:
        """What came of it, from the runs' folders; refuses those that have not ended."""
        return self.found(ended_outcomes(self.plan))

    def found(self, outcomes: Sequence[Outcome]) -> Grid:
        """What came of it. Honest clients are those of the fraction in question, for Local and
        unharmed runs too.
        """
        each = iter(outcomes)
        found = {cell: [next(each) for _ in self.seeds] for cell in self.cells}
        cells = {}
        for label in self.labels:
            for a in self.attacks:
                for f in self.fractions:
                    calm = found[label, "", 0.0]
                    cells[label, a.name, f] = Cell.of(
                        found.get((label, a.name, f)) or calm,
                        calm,
                        [who_lies(self.experiment, s, f) for s in self.seeds],
                    )
        federation = self.experiment.federation()
        return Grid(
            self.experiment.name,
            self.labels,
            [a.name for a in self.attacks],
            self.fractions,
            self.seeds,
            cells,
            metric=metric_of(self.experiment.training.metric, federation.task),
            which_round=which_round(outcomes),
        )


def assault(
    experiment: Experiment, attacks: Sequence[Attack], fractions: Sequence[float], folder: Path
) -> Assault:
    """The runs of a grid of attacks, not begun."""
    if not experiment.contenders or not attacks or not fractions:
        raise InvalidInput("a grid of attacks needs at least 1 method, 1 attack and 1 fraction.")
    _refuse_twice("the attack", [a.name for a in attacks])
    _refuse_twice("the fraction", [f"{f:g}" for f in fractions])
    federation = experiment.federation()
    if not len(federation.test):
        raise InvalidInput(
            f"{federation.name!r} has no test data, so nothing can be scored on it; give it a test"
            " share > 0."
        )
    seeds = list(experiment.seeds or (experiment.training.seed,))
    everybody = experiment.training.cohort_size(federation) == federation.clients
    labelled, _ = with_locals(experiment.contenders, everybody)
    names = dict(zip((label for label, _ in labelled), slugs(labelled), strict=True))
    plan: list[tuple[str, Any, Attack | None, float]] = []
    for label, contender in labelled:
        plan.append((label, contender, None, 0.0))
        if exchange_of(contender.method).sends:
            plan += [
                (label, contender, a.replace(fraction=f), f)
                for a in attacks
                for f in fractions
                if f > 0
            ]
    runs_ = [
        Planned(
            f"{label}, {attack.name} {fraction:.0%}" if attack else f"{label}, unharmed",
            f"{label}, {attack.name}" if attack else label,
            experiment.single(contender, seed).with_(attack=attack),
            folder
            / "runs"
            / names[label]
            / (f"{attack.name}-{fraction:g}-seed{seed}" if attack else f"unharmed-seed{seed}"),
        )
        for label, contender, attack, fraction in plan
        for seed in seeds
    ]
    cells = [(label, attack.name if attack else "", f) for label, _, attack, f in plan]
    labels = [label for label, _ in labelled]
    return Assault(experiment, list(attacks), list(fractions), labels, cells, runs_)


def attack_into(
    experiment: Experiment,
    attacks: Sequence[Attack],
    fractions: Sequence[float],
    folder: Path,
    *,
    force: bool = False,
    begin: Begin | None = None,
    say: runs.Say = print,
    jobs: int = 1,
    cluster: Scheduler | None = None,
    keep_models: bool = True,
) -> Grid:
    """Run the grid into a folder: a run per method, attack, fraction and seed (one without attack
    serves all attacks), table.md and report.html.

    Finished runs are taken as they are, unfinished ones resumed: the command can be killed and
    repeated, or repeated with more attacks or fractions. Without `keep_models`, a run's models are
    deleted once it has ended.
    """
    made = assault(experiment, attacks, fractions, folder)
    if warning := warn_without_test(experiment.federation()):
        say(warning)
    make_folder(folder, force=force or (folder / "config.toml").is_file())
    write_text(folder / "config.toml", experiment.to_toml())
    with planned(folder, [run.folder for run in made.plan]):
        outcomes = run_all(
            made.plan,
            jobs=jobs,
            cluster=cluster,
            keep_models=keep_models,
            begin=begin,
            say=lambda sentence: None,
            force=force,
        )
    grid = made.found(outcomes)
    write_attack_report(grid, experiment, folder, made.recipe())
    return grid
