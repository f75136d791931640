"""The papers' tables and figures: every experiment can be made, a cell of each paper and kind runs,
results say what they must.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.adversary import get_attack
from coterie.core.errors import InvalidInput
from coterie.runs.contender import Contender, named
from coterie.runs.experiment import Experiment
from coterie.runs.reproduce import PaperTable, table_of
from coterie.runs.reproduce.base import (
    ACCURACY,
    BEHIND,
    MEASURES,
    TO_TARGET,
    VARIANCE,
    Printed,
    all_tables,
)
from coterie.runs.reproduce.carry_out import Done, Wish, carry_out
from coterie.runs.reproduce.cost import Cost, note_costs, read_costs, told, told_of_all
from coterie.runs.reproduce.plan import study_of
from coterie.runs.reproduce.result import write
from coterie.runs.reproduce.rows import read_csv
from coterie.runs.reproduce.sheet import _same
from tests.conftest import Cli

COMMITTED = Path(__file__).parents[2] / "experiments"
REAL = os.environ.get("COTERIE_DATA")
TABLES = [pytest.param(t, id=f"{t.key}-{t.protocol}") for t in all_tables("both")]


@pytest.mark.parametrize("table", TABLES)
def test_experiments_can_be_made(table: PaperTable) -> None:
    assert len({block.name for block in table.blocks}) == len(table.blocks)
    assert set(table.measures) <= set(MEASURES)
    for block in table.blocks:
        made = Experiment.from_config({**block.settings(table.seeds), "methods": block.methods()})
        assert len(made.contenders) == len(block.methods())
        assert len({line.name for line in block.lines}) == len(block.lines)
        for line in block.lines:
            method = Contender.from_config(line.method).method.replace(**line.changes)
            assert line.view is None or line.view in method.model_views
            made.training.replace(**line.training)
            if line.attack is not None:
                get_attack(*named("attack", line.attack))
            for measure, text in line.printed.items():
                assert measure in MEASURES
                assert Printed.read(text) is not None, text
        tune = {"search": block.search()}
        Experiment.from_config({**block.settings(1), "methods": block.methods(), "tune": tune})


def test_tables_of_a_paper_are_tuned_once() -> None:
    """Attacks, other projections and figures have the values that were found for Table 4."""
    base = table_of("lp-proj/table-4").blocks[2]
    for key in ("table-6", "table-9", "table-16", "figure-5"):
        block = next(b for b in table_of(f"lp-proj/{key}").blocks if b.name == base.name)
        assert block.tuned_methods() == base.tuned_methods()
        assert block.settings(1) == base.settings(1)


def test_numbers_are_those_of_the_paper() -> None:
    """Cells here and there, looked up by eye."""

    def cell(key: str, block: str, label: str, column: str = "") -> dict[str, str]:
        lines = next(b for b in table_of(f"lp-proj/{key}").blocks if b.name == block).lines
        return next(x for x in lines if (x.label, x.column) == (label, column)).printed

    assert cell("table-4", "mnist", "pFedMe")[ACCURACY] == "98.24 ± 0.05"
    assert cell("table-4", "fashion-mnist", "RSA")[VARIANCE] == "0.0039 ± 0.0012"
    assert cell("table-7", "mnist", "Global+Krum", "50%") == {ACCURACY: "79.6", VARIANCE: "0.029"}
    assert cell("table-7", "mnist", "lp-proj-2", "80%") == {ACCURACY: "★", VARIANCE: "★"}
    assert cell("table-15", "synthetic-00-unbalanced", "Ditto", "20%")[ACCURACY] == "32.2"
    assert cell("table-5", "mnist", "QSGD")[TO_TARGET] == "15966000 ± 4693474"
    assert cell("table-17", "emnist", "lp-proj-1", "dsub = 120")["train loss"] == "0.0370"
    assert cell("table-4", "synthetic-11", "Local") == {}  # cannot be read


def tiny(key: str, name: str, *names: str) -> PaperTable:
    """Some lines of one block, on few clients."""
    table = table_of(key)
    block = next(b for b in table.blocks if b.name == name)
    lines = tuple(line for line in block.lines if line.name in names)
    assert len(lines) == len(names)
    experiment = block.experiment
    if experiment["data"]["name"] == "synthetic":  # 10 of the 100 clients are enough to see it run
        training = {k: v for k, v in experiment["training"].items() if k != "cohort"}
        data = {**experiment["data"], "clients": 10}
        experiment = {**experiment, "data": data, "training": training}
    small = dataclasses.replace(block, lines=lines, experiment=experiment)
    return dataclasses.replace(table, blocks=(small,))


QUICK = ["--quick"]


def carried_out(table: PaperTable, work: Path, **wish: Any) -> list[Done]:
    ((_, done),) = carry_out([table], Wish(work, quick=True, say=lambda _: None, **wish))
    return done


real = pytest.mark.skipif(not REAL, reason="COTERIE_DATA does not point to real data")
CELLS: list[Any] = [
    ("pfedme/table-1", "synthetic-mlr", "pFedMe (GM)", "pFedMe (PM)"),
    ("pfedme/figure-7", "synthetic-mlr", "pFedMe (PM)", "pFedMe (GM)"),
    ("lp-proj/table-4", "synthetic-00", "lp-proj-2", "Local"),
    ("lp-proj/table-5", "synthetic-00", "FedAvg", "QSGD"),
    pytest.param(("fedu/table-3", "har-convex", "FedU", "Local"), marks=real),
    pytest.param(("fedu/figure-3", "har-convex", "FedU, η = 0.01", "Local"), marks=real),
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_each_paper_and_kind(cell: tuple[str, ...], tmp_path: Path) -> None:
    table = tiny(*cell)
    for _ in range(2):  # the second time everything is there
        done = carried_out(table, tmp_path / "runs")
        folder = write(table, done, tmp_path, QUICK)
    text = (folder / "result.md").read_text()
    for line in table.blocks[0].lines:
        assert f"| {line.label} |" in text
        assert all(printed in text for printed in line.printed.values())
    assert (folder / "figure.svg").read_text().startswith("<svg")
    rows = read_csv((folder / "result.csv").read_text())
    for measure in table.measures:
        first = measure == BEHIND  # which is behind nobody
        assert sum(r.measure == measure for r in rows) == len(table.blocks[0].lines) - first
    if "train loss" in table.measures:
        assert all(r.there for r in rows if r.measure == "train loss")
    note_costs(tmp_path, table, done, quick=True)
    ((_, cost),) = read_costs(tmp_path).items()
    assert cost.seconds > 0
    assert told(table, read_costs(tmp_path)).startswith("about ")


def test_blocks_of_an_earlier_command_stay_in_the_result(tmp_path: Path) -> None:
    """Also when nothing is left of their runs; not when they are defined anew."""
    names = ("pFedMe (PM)", "pFedMe (GM)")
    first, second = (
        tiny("pfedme/figure-7", name, *names).blocks[0]
        for name in ("synthetic-mlr", "synthetic-dnn")
    )
    both = dataclasses.replace(table_of("pfedme/figure-7"), blocks=(first, second))
    (mlr,) = carried_out(dataclasses.replace(both, blocks=(first,)), tmp_path / "a")
    folder = write(both, [mlr], tmp_path, QUICK)
    assert "--block synthetic-mlr --quick`" in (folder / "result.md").read_text()
    cells, section = (folder / "result.csv").read_text(), (folder / "result.md").read_text()
    section = section[section.index("## ") :]

    (dnn,) = carried_out(dataclasses.replace(both, blocks=(second,)), tmp_path / "b")
    write(both, [dnn], tmp_path, QUICK)
    text = (folder / "result.md").read_text()
    assert "`coterie reproduce pfedme/figure-7 --quick`:" in text
    assert text.index(section) < text.index("## Synthetic(0.5, 0.5), DNN")
    rows = (folder / "result.csv").read_text()
    assert rows.startswith(cells)
    assert {r.block for r in read_csv(rows)} == {"synthetic-mlr", "synthetic-dnn"}
    write(both, [mlr, dnn], tmp_path / "at once", QUICK)
    at_once = tmp_path / "at once" / "pfedme" / "figure-7"
    for name in ("result.md", "result.csv", "curves.csv"):
        assert (at_once / name).read_text() == (folder / name).read_text()

    training = {**first.experiment["training"], "rounds": 700}
    changed = dataclasses.replace(first, experiment={**first.experiment, "training": training})
    write(dataclasses.replace(both, blocks=(changed, second)), [dnn], tmp_path, QUICK)
    assert {r.block for r in read_csv((folder / "result.csv").read_text())} == {"synthetic-dnn"}


def test_a_block_for_which_something_else_is_searched_is_made_anew(tmp_path: Path) -> None:
    block = tiny("lp-proj/table-4", "synthetic-00", "lp-proj-2").blocks[0]
    study = study_of(block, tmp_path)
    assert study is not None
    config = {**block.settings(1, quick=False), "methods": block.methods()}
    file = tmp_path / f"{block.name}.toml"
    tuned = f"# tuned: tuned/{study.folder.name}.json\n"
    file.write_text(tuned + Experiment.from_config(config).to_toml())
    assert _same(block, tmp_path, False)
    (line,) = block.lines
    fixed = dataclasses.replace(line, fixed=("lam",))
    assert not _same(dataclasses.replace(block, lines=(fixed,)), tmp_path, False)


def test_under_attack_scores_are_of_honest_clients_and_runs_are_shared(tmp_path: Path) -> None:
    names = ("lp-proj-2, 0%", "lp-proj-2, 50%")
    attacked = tiny("lp-proj/table-7", "synthetic-00", *names)
    (done,) = carried_out(attacked, tmp_path)
    calm, lied = done.lines
    assert calm.counts[0].sum() == 10
    assert lied.counts[0].sum() == 5
    at_the_end = lied.outcomes[0].scores["personal"][-1]
    wanted = 100 * at_the_end[lied.counts[0]].mean()
    assert lied.accuracies("last") == [pytest.approx(wanted)]
    assert lied.values(VARIANCE, "last") == [pytest.approx(at_the_end[lied.counts[0]].var())]
    text = write(attacked, [done], tmp_path).joinpath("synthetic-00.toml").read_text()
    assert "# lp-proj-2, 50%: attack.name = 'sign-flip', attack.fraction = 0.5" in text
    assert "lies not sent" not in (tmp_path / "lp-proj/table-7/result.md").read_text()
    lied.outcomes[0].unsent = 7
    page = write(attacked, [done], tmp_path).joinpath("result.md").read_text()
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line[:1] == "|"]
    place = table[0].index("lies not sent")
    assert [row[place].strip() for row in table[2:]] == ["", "7"]

    there = sorted((tmp_path / "runs" / "synthetic").iterdir())
    assert len(there) == 2
    (done,) = carried_out(tiny("lp-proj/figure-6", "synthetic-00", "lp-proj-2"), tmp_path)
    again = sorted((tmp_path / "runs" / "synthetic").iterdir())
    assert set(there) < set(again)  # where nobody lies it is the same run; and there is a Local
    assert len(again) == 3


class Board:
    """Remembers how far the one bar was."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, label: str, number: int, total: int) -> None:
        self.overall(number, total)

    def overall(self, ended: int, total: int) -> None:
        self.seen.append((ended, total))

    def show(
        self, slot: int, label: str, rounds: int | None, total: int | None, note: str | None
    ) -> None:
        pass


def test_a_figure_and_the_tables_that_it_is_drawn_from_are_tuned_once(tmp_path: Path) -> None:
    def tuned(key: str, name: str) -> Path:
        block = next(b for b in table_of(key).blocks if b.name == name)
        study = study_of(block, tmp_path)
        assert study is not None
        return study.folder

    folders = {
        tuned("lp-proj/table-4", "synthetic-00"),
        tuned("lp-proj/table-6", "synthetic-00"),
        tuned("lp-proj/figure-4", "synthetic-00-gaussian"),
        tuned("lp-proj/figure-6", "synthetic-00"),
    }
    assert len(folders) == 1


def test_one_bar_counts_tunings_and_runs_and_values_are_those_found(tmp_path: Path) -> None:
    table = tiny("lp-proj/table-10", "synthetic-00-unbalanced", "FedAvg", "Local")
    block = table.blocks[0]
    data = {**block.experiment["data"], "clients": 4, "sizes": "equal", "mean_size": 20}
    training = {"rounds": 3, "eval_every": 3, "batch_size": 4}
    experiment = {**block.experiment, "data": data, "training": training}
    small = dataclasses.replace(block, experiment=experiment)
    table, board = dataclasses.replace(table, blocks=(small,)), Board()
    wish = Wish(tmp_path, seeds=1, begin=board, say=lambda _: None)
    ((_, (done,)),) = carry_out([table], wish)
    assert {total for _, total in board.seen} == {4}  # two tunings, two runs
    assert [ended for ended, _ in board.seen] == [0, 1, 2, 3]
    tuned = Experiment.from_file(next((tmp_path / "tuning").glob("*/tuned.toml")))
    fedavg = next(c for c in tuned.contenders if c.method.name == "fedavg")
    assert done.lines[0].contender == fedavg
    assert done.tuning > 0
    runs = sorted((tmp_path / "runs").rglob("status.json"))
    ((_, (again,)),) = carry_out([table], wish)
    assert again.lines[0].contender == fedavg
    assert sorted((tmp_path / "runs").rglob("status.json")) == runs

    # Elsewhere, with what was noted of the tuning, nothing is tuned: the same values, and seconds.
    noted = tmp_path / "out" / "tuned"
    ((_, (first,)),) = carry_out([table], dataclasses.replace(wish, tuned=noted))
    other = dataclasses.replace(wish, work=tmp_path / "other", begin=None, tuned=noted)
    ((_, (later,)),) = carry_out([table], other)
    assert not (tmp_path / "other" / "tuning").exists()
    assert [x.contender for x in later.lines] == [x.contender for x in first.lines]
    assert later.tuning == pytest.approx(first.tuning, abs=0.1)
    (values,) = noted.glob("*.json")
    assert len(list(noted.glob("*.csv"))) == 1
    values.write_text("{}")
    with pytest.raises(InvalidInput, match="does not have the values of a tuning"):
        list(carry_out([table], other))
    list(carry_out([table], dataclasses.replace(other, work=tmp_path, again=True)))
    assert "fedavg" in values.read_text()


def test_what_is_wrong_is_said_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    code, _, said = cli("reproduce", "fedu/table-9")
    assert code == 2
    assert "fedu/table-3" in said
    code, _, said = cli("reproduce", "pfedme/table-1", "--block", "mars")
    assert code == 2
    assert "synthetic-mlr" in said
    code, _, said = cli("reproduce", "lp-proj/table-16", "--protocol", "paper")
    assert code == 2
    assert "has no other protocol than 'honest'" in said
    code, _, said = cli("reproduce", "all", "--protocol", "kind")
    assert code == 2
    assert "both, honest, paper" in said
    code, out, _ = cli("reproduce", "lp-proj/table-10", "--missing", "-o", str(COMMITTED))
    assert code == 0
    assert "every block has a result" in out
    code, out, _ = cli("reproduce", "list")
    assert code == 0
    assert "lp-proj/table-4" in out


def test_what_takes_hours_is_asked_for(cli: Cli) -> None:
    """Also of a table that is named, as of `all`."""
    code, _, said = cli("reproduce", "lp-proj/figure-2")
    assert code == 2
    assert "only blocks that take hours (cifar10, emnist)" in " ".join(said.split())
    code, _, said = cli("reproduce", "lp-proj/table-16", "--missing", "-o", str(COMMITTED))
    assert (code, said) == (0, ""), "all its blocks are short"
    code, out, said = cli("reproduce", "lp-proj/table-17", "--missing", "-o", str(COMMITTED))
    assert (code, "every block has a result" in out) == (0, True)
    assert "left out, since they take hours: emnist" in said


def test_what_all_takes_is_told() -> None:
    table = table_of("lp-proj/table-16")
    costs = {(table.key, "honest", "mnist"): Cost(3, 7300.0, "cores")}
    assert told_of_all([table], costs).startswith("`all`: at most 2.0 h of one core; runs")
    others = [table, table_of("lp-proj/table-17")]
    assert ", and 1 of 2 blocks not measured" in told_of_all(others, costs)
    assert told_of_all([table], {}) == "`all`: not measured"


@pytest.mark.slow
def test_killed_it_goes_on_without_repeating_a_run(tmp_path: Path) -> None:
    asked = ("pfedme/figure-7", "--block", "synthetic-mlr", "--quick", "-o", str(tmp_path / "out"))
    begin = lambda: subprocess.Popen(
        [sys.executable, "-m", "coterie", "reproduce", *asked], cwd=tmp_path, text=True
    )

    def done() -> dict[Path, bytes]:
        """Runs that have ended, and what they took, which no second run would take exactly."""
        found = (tmp_path / "runs").rglob("status.json")
        ended = [p for p in found if json.loads(p.read_text())["finished"]]
        return {p: (p.parent / "timing.parquet").read_bytes() for p in ended}

    process, end = begin(), time.monotonic() + 300
    while not done():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    time.sleep(5)  # the processes of a killed command end by themselves
    before = done()
    assert not (tmp_path / "out" / "quick" / "pfedme" / "figure-7" / "result.md").exists()
    assert begin().wait(300) == 0
    after = done()
    assert before.items() <= after.items()
    assert len(before) < len(after), "it was killed too late for this test to say anything"
    assert (tmp_path / "out" / "quick" / "pfedme" / "figure-7" / "result.md").is_file()


def without_download(table: PaperTable) -> PaperTable:
    blocks = []
    for block in table.blocks:
        data = {**block.experiment["data"], "download": False}
        blocks.append(dataclasses.replace(block, experiment={**block.experiment, "data": data}))
    return dataclasses.replace(table, blocks=tuple(blocks))


def test_data_that_are_not_there_are_told_of_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    tables = [
        without_download(tiny(key, "har-convex", label))
        for key, label in (("fedu/table-3", "FedU"), ("fedu/figure-4", "Random"))
    ]
    wish = Wish(tmp_path / "runs", quick=True, say=said.append)
    with pytest.raises(InvalidInput, match="nothing can be done"):
        list(carry_out(tables, wish))
    assert len(said) == 1
    assert said[0].startswith("left out: fedu/table-3 har-convex, fedu/figure-4 har-convex: ")
    assert not (tmp_path / "runs").exists()
