"""The documentation runs, and the commands in README are those that CI runs."""

from __future__ import annotations

import re
import sys
import tomllib
import types
from pathlib import Path

import pytest

from coterie.runs.experiment import Experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_in_the_documentation_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.core.metrics import METRICS
    from coterie.methods import METHODS

    if page.name == "torch.md":
        pytest.importorskip("torch", reason="PyTorch is an extra")
    monkeypatch.chdir(tmp_path)
    before, metrics = dict(METHODS), dict(METRICS)
    module = types.ModuleType("documentation")
    monkeypatch.setitem(sys.modules, "documentation", module)
    try:
        for block in blocks(page, "python"):
            exec(compile(block, page.name, "exec"), module.__dict__)
    finally:
        METHODS.clear()
        METHODS.update(before)
        METRICS.clear()
        METRICS.update(metrics)


def test_the_experiment_in_the_readme_is_valid() -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
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
