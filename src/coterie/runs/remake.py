"""Reports and figures from the folders of runs, again: nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.adversary import get_attack
from coterie.core.errors import InvalidInput
from coterie.core.files import reading_tables
from coterie.core.metrics import metric_of
from coterie.core.options import as_written
from coterie.coupling.graph import Graph
from coterie.methods.local import Local, equal_compute
from coterie.report.attack_page import attack_page
from coterie.report.attacked import Grid
from coterie.report.comparison import Comparison
from coterie.report.measures import sheets
from coterie.report.outcome import Outcome
from coterie.report.page import page
from coterie.runs import inputs
from coterie.runs import run as runs
from coterie.runs.answer import answer_again
from coterie.runs.attack import assault
from coterie.runs.compare import assemble, pair
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.labels import distinct, graph_text, label_of
from coterie.runs.outcomes import read_outcome
from coterie.runs.reporting import graphs_of, read_recipe


class Found(NamedTuple):
    """What folders hold: a comparison, or a grid of attacks."""

    comparison: Comparison | None
    grid: Grid | None
    config: str
    graphs: Mapping[str, Graph]
    wishes: tuple[Sequence[float], Sequence[float]] = ((), ())
    """Targets and budgets of the byte bill."""

    def html(self) -> str:
        """The report."""
        if self.grid is not None:
            return attack_page(self.grid, self.config)
        assert self.comparison is not None
        more = sheets(self.comparison, *self.wishes)
        return page(self.comparison, self.config, more, self.graphs)


def gather(folders: Sequence[Path]) -> Found:
    """What these folders hold: one of `compare`, `attack` or `demo`, or several of `run` on the
    same data.
    """
    if not folders:
        raise InvalidInput("name at least one folder of runs.")
    for folder in folders:
        if not (folder / "config.toml").is_file():
            what = "is not the folder of a run" if folder.is_dir() else "is no folder"
            raise InvalidInput(f"{str(folder)!r} {what}: it has no config.toml.")
    several = [folder for folder in folders if (folder / "runs").is_dir()]
    if several and len(folders) > 1:
        raise InvalidInput(
            f"{str(several[0])!r} holds several runs; report on it alone, or name the runs in its"
            " folder 'runs'."
        )
    return _of_command(folders[0]) if several else _of_runs(folders)


def _experiment(folder: Path) -> Experiment:
    inputs.refuse_without_imports(folder)
    with as_written():
        return Experiment.from_file(folder / "config.toml")


def _of_command(folder: Path) -> Found:
    recipe, experiment = read_recipe(folder), _experiment(folder)
    wishes = (recipe.get("targets", ()), recipe.get("budgets", ()))
    config = experiment.to_toml()
    with reading_tables(folder, "repeat the command that made it"):
        if recipe.get("kind") == "attack":
            attacks = [_attack(table) for table in recipe["attacks"]]
            found = assault(experiment, attacks, list(recipe["fractions"]), folder)
            return Found(None, found.read(), config, {})
        if recipe.get("kind") == "answer":
            comparison = answer_again(experiment, folder, recipe)
        else:
            comparison = pair(experiment, folder).read()
    return Found(comparison, None, config, graphs_of(comparison, experiment), wishes)


def _attack(table: dict[str, Any]) -> Any:
    options = {key: value for key, value in table.items() if key != "name"}
    return type(get_attack(table["name"])).from_config(options)


class _Run(NamedTuple):
    folder: Path
    experiment: Experiment
    outcome: Outcome


def _of_runs(folders: Sequence[Path]) -> Found:
    """Runs side by side: those that differ in the seed only are one method."""
    read = [_run(folder) for folder in folders]
    first = read[0].experiment
    for other in read[1:]:
        _refuse_unlike(read[0], other)
    groups: dict[str, list[_Run]] = {}
    for run in read:
        groups.setdefault(run.experiment.single(run.experiment.contender, 0).to_toml(), []).append(
            run
        )
    contenders = [group[0].experiment.contender for group in groups.values()]
    labels = distinct([label_of(c, contenders) for c in contenders], " ({})")
    table = []
    for group in groups.values():
        group.sort(key=lambda run: run.outcome.seed)
        seeds = [run.outcome.seed for run in group]
        if twice := [s for s in seeds if seeds.count(s) > 1]:
            raise InvalidInput(
                f"two of these runs are the same at seed {twice[0]}; name each once."
            )
        table.append([run.outcome for run in group])
    federation = first.federation()
    comparison = assemble(
        first.name if len(read) == 1 else f"{federation.name}, {len(read)} runs",
        federation,
        list(zip(labels, contenders, strict=True)),
        _partners(contenders, table),
        table,
        metric=metric_of(first.training.metric, federation.task),
        protocol=first.protocol,
        graph_of=lambda c: graph_text(first.graph_of(c)),
    )
    graphs: dict[str, Graph] = {}
    for label, group in zip(labels, groups.values(), strict=True):
        for graph in graphs_of(comparison, group[0].experiment).values():
            graphs[label] = graph
    config = "\n".join(group[0].experiment.to_toml() for group in groups.values())
    return Found(comparison, None, config, graphs)


def _run(folder: Path) -> _Run:
    experiment = _experiment(folder)
    if not runs.has_ended(folder):
        raise InvalidInput(
            f"the run {str(folder)!r} has not ended; go on with: coterie resume {folder}"
        )
    if experiment.attack is not None:
        raise InvalidInput(
            f"{str(folder)!r} is a run under attack; report on the folder of `coterie attack`."
        )
    inputs.refuse_changed(folder, experiment, "run its config.toml again")
    with reading_tables(folder, "run its config.toml again"):
        return _Run(folder, experiment, read_outcome(folder, experiment))


def _refuse_unlike(one: _Run, other: _Run) -> None:
    a, b = one.experiment, other.experiment
    what = None
    if a.data_hash() != b.data_hash():
        what = "not of the same data"
    elif a.training.metric != b.training.metric:
        what = "not judged by the same metric"
    if what:
        raise InvalidInput(
            f"{str(one.folder)!r} and {str(other.folder)!r} are {what}; report on each alone."
        )


def _partners(contenders: Sequence[Contender], table: Sequence[list[Outcome]]) -> list[int | None]:
    """For each method the Local with the same gradient work and seeds, if it is among the runs."""
    seeds = [[o.seed for o in outcomes] for outcomes in table]
    same = lambda m: type(m).from_config(m.replace(trains="sampled").to_config())
    found: list[int | None] = []
    for i, c in enumerate(contenders):
        mine = c.method if isinstance(c.method, Local) else equal_compute(c.method)
        found.append(
            next(
                (
                    j
                    for j, other in enumerate(contenders)
                    if isinstance(other.method, Local)
                    and same(other.method) == same(mine)
                    and seeds[i] == seeds[j]
                ),
                None,
            )
        )
    return found
