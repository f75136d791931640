"""The documentation runs, and the commands in README are those that CI runs."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from coterie.runs.experiment import Experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.md"))
RUNNABLE = [page for page in PAGES if blocks(page, "python") and page not in NOTEBOOKS]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.name)
def test_python_in_the_documentation_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.channel import CHANNELS
    from coterie.core.metrics import METRICS
    from coterie.coupling.learnt import RULES
    from coterie.data import SOURCES
    from coterie.methods import METHODS

    if page.name == "torch.md":
        pytest.importorskip("torch", reason="PyTorch is an extra")
    if page.name == "data-elsewhere.md":
        pytest.importorskip("flwr_datasets", reason="Hugging Face and flwr-datasets are an extra")
    monkeypatch.chdir(tmp_path)
    registries: list[dict[str, Any]] = [METHODS, METRICS, CHANNELS, RULES, SOURCES]
    before = [dict(registry) for registry in registries]
    module = types.ModuleType("documentation")
    monkeypatch.setitem(sys.modules, "documentation", module)
    try:
        for block in blocks(page, "python"):
            exec(compile(block, page.name, "exec"), module.__dict__)
    finally:
        for registry, kept in zip(registries, before, strict=True):
            registry.clear()
            registry.update(kept)


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(page: Path, tmp_path: Path) -> None:
    """In a kernel of its own, as Jupyter does it."""
    jupytext = pytest.importorskip("jupytext", reason="the extra [test] has it")
    nbclient = pytest.importorskip("nbclient", reason="the extra [test] has it")
    notebook = jupytext.read(page)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources=resources
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == len(blocks(page, "python"))
    assert sum(bool(cell.outputs) for cell in cells) >= 3


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run(cli: Any, tmp_path: Path) -> None:
    """As they stand, on the tutorial's own table; only the tuning is left out, for its time."""
    page = ROOT / "docs/tutorial.md"
    exec(compile(blocks(page, "python")[0], page.name, "exec"), {})
    for words in commands(page):
        code, said, error = cli(*(["0" if word == "2" else word for word in words]))
        assert code == 0, said + error
    assert (tmp_path / "runs/readings-compare/report.html").is_file()
    assert (tmp_path / "predicted.csv").read_text().count("\n") > 400


def test_the_experiment_on_the_command_line_is_valid() -> None:
    (text,) = blocks(ROOT / "docs/command-line.md", "toml")
    assert Experiment.from_config(tomllib.loads(text)).method.name == "fedu"


def test_the_experiment_in_tuning_is_valid() -> None:
    whole, part = blocks(ROOT / "docs/tuning.md", "toml")
    made = Experiment.from_config(tomllib.loads(whole))
    assert made.tune is not None
    assert set(made.tune.spaces) == {"fedu"}
    Experiment.from_config({"data": "digits", **tomllib.loads(part)})


def test_the_plan_and_the_client_in_the_documentation_are_valid(tmp_path: Path) -> None:
    from coterie.deploy.site import Site

    plan, site = blocks(ROOT / "docs/deploy.md", "toml")
    (tmp_path / "plan.toml").write_text(plan)
    (tmp_path / "site.toml").write_text(site)
    rows = [
        "age,heart-rate,sex,readmitted",
        *(f"{40 + i},{60 + 2 * i},{'fm'[i % 2]},{'no' if i % 3 else 'yes'}" for i in range(12)),
    ]
    (tmp_path / "ward-a.csv").write_text("\n".join(rows))
    read = Site.from_file(tmp_path / "site.toml")
    assert (read.plan.method.name, read.plan.channel.name, read.number) == ("fedu", "delta", 0)
    own = read.load_data()
    assert own.clients == 1
    assert own.input_shape == (4,)
    assert set(own.train.y.tolist()) == {0, 1}


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    command = next(
        line
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if "pytest" in line
    )
    assert command in (ROOT / ".ci/run").read_text().splitlines()


def test_every_method_is_in_the_table_of_methods_and_has_a_page() -> None:
    from coterie import METHODS

    text = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"[`{name}`](methods/{name}.md)" not in text] == []
    assert {p.stem for p in (ROOT / "docs/methods").glob("*.md")} == set(METHODS)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "experiments").glob("**/*.md"), *(ROOT / "bench").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_of_methods_and_channels_are_up_to_date() -> None:
    import runpy

    for name, text in runpy.run_path(str(ROOT / "tools/methods_page.py"))["pages"]().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, (
            "run: python tools/methods_page.py"
        )


def test_the_page_on_choosing_is_up_to_date() -> None:
    import runpy

    tool = runpy.run_path(str(ROOT / "tools/choosing_page.py"))
    told = "run: python tools/choosing_page.py"
    assert (ROOT / "docs/choosing.md").read_text(encoding="utf-8") == tool["page"](), told
    figure = (ROOT / "docs/images/choosing.svg").read_text(encoding="utf-8")
    assert figure == tool["figure"](), told


@pytest.mark.parametrize("name", ["README.md", "docs/choosing.md", "docs/attacks.md"])
def test_measured_numbers_stand_in_the_files_that_are_linked(name: str) -> None:
    """A number with decimals, or a factor, is in a result that the same page links to."""
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    bare = re.sub(r"```.*?```|<!-- measured: begin.*?measured: end -->", "", text, flags=re.DOTALL)
    linked = re.findall(r"\]\(([^)#:]*(?:experiments|bench)/[^)#:]+\.md)", text)
    known = "".join((page.parent / target).read_text(encoding="utf-8") for target in set(linked))
    claimed = set(
        re.findall(r"(?<![\d.,])(\d+\.\d+|\d+(?= times)|\d+,\d{3}(?= times))(?![\d%])", bare)
    )
    assert len(claimed) >= 5
    assert [
        n for n in sorted(claimed) if not re.search(rf"(?<![\d.]){re.escape(n)}(?!\d)", known)
    ] == []


def test_the_page_of_results_is_up_to_date() -> None:
    import runpy

    text, figures = runpy.run_path(str(ROOT / "tools/papers_page.py"))["page"]()
    told = "run: python tools/papers_page.py"
    assert (ROOT / "docs/papers.md").read_text(encoding="utf-8") == text, told
    for name, figure in figures.items():
        path = ROOT / "docs/images/papers" / name
        assert path.read_text(encoding="utf-8") == figure, told


EXPERIMENTS = sorted((ROOT / "experiments").glob("**/*.toml"))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_an_experiment_is_valid_and_begins_with_its_own_command(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    Experiment.from_config(tomllib.loads(text))
    head = text[: text.index("\nname = ")]
    if found := re.match(r"# coterie reproduce (\S+) --block (\S+)(?: --protocol (\S+))?\n", text):
        folder = found[1] + (f"-{found[3]}" if found[3] else "")
        assert path == ROOT / "experiments" / folder / f"{found[2]}.toml"
        return
    assert path.name == "experiment.toml"
    commands = re.findall(
        r"^# coterie (?:compare|attack|tune) (experiments\S+)", head, re.MULTILINE
    )
    assert commands
    assert set(commands) == {str(path.relative_to(ROOT))}


def test_every_experiment_has_its_result_or_is_for_tuning() -> None:
    for path in EXPERIMENTS:
        tuning = path.is_relative_to(ROOT / "experiments/tuning")
        assert tuning or (path.parent / "result.md").is_file(), path


def test_the_results_as_csv_are_up_to_date() -> None:
    import runpy

    script = runpy.run_path(str(ROOT / "experiments/tables_to_csv.py"))
    for page in script["pages"]():
        made = script["as_csv"](page)
        assert made.count("\n") > 1, f"{page} has no table"
        assert page.with_suffix(".csv").read_text(encoding="utf-8") == made, (
            "run: python experiments/tables_to_csv.py"
        )


def test_what_the_pages_say_of_merges_and_proofs_is_so() -> None:
    from coterie.channel import CHANNELS
    from coterie.methods import METHODS

    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    (claim,) = re.findall(r"The option `merging` is in (.*?)\. The hub of", page, re.DOTALL)
    assert set(re.findall(r"`([a-z0-9-]+)`", claim)) == {
        name for name, cls in METHODS.items() if "merging" in cls.public()
    }
    design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    (proved,) = re.findall(r"## What is proved.*?(\n\|.*?)\n\n", design, re.DOTALL)
    assert set(re.findall(r"`([a-z0-9-]+)`", proved)) == set(METHODS)
    assert f"There are {len(METHODS)} methods" in design
    exact = [name for name, cls in METHODS.items() if cls.needs_exact]
    assert exact == ["ifca", "mocha"], "docs/channels.md names those that need exact messages"
    refused = [name for name, cls in CHANNELS.items() if not cls().contracts()]
    assert refused == ["qsgd"], "docs/channels.md names those that graphs refuse"


def commands(page: Path) -> list[list[str]]:
    """The `coterie` command lines of a page's sh blocks."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    pieces = [piece.strip() for line in lines for piece in line.split(" && ")]
    split = [shlex.split(piece, comments=True) for piece in pieces if "coterie" in piece]
    return [words[1:] for words in split if words and words[0].split("/")[-1] == "coterie"]


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_commands_in_the_documentation_exist_with_their_options(page: Path) -> None:
    """What is not there: the command, an option, or an argument too many. Nothing is run."""
    import click
    import typer.main

    from coterie.cli import app

    for words in commands(page):
        command: Any = typer.main.get_command(app)
        rest = list(words)
        if rest[0] in ("--install-completion", "--show-completion"):
            continue  # of the command line's library, which only reads them from a real one
        while isinstance(command, click.Group):
            name = rest.pop(0)
            assert name in command.commands, f"{page.name}: coterie {' '.join(words)}"
            command = command.commands[name]
        if "--help" in rest:
            continue
        try:
            command.make_context(command.name, rest)
        except click.BadParameter as error:
            if "does not exist" not in str(error):  # a file that is not here is fine
                raise
