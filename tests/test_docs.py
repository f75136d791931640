"""The documentation runs, and the commands in README are those that CI runs."""

from __future__ import annotations

import re
import sys
import tomllib
import types
from pathlib import Path

import pytest

from coterie.experiment import Experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_in_the_documentation_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.algorithms import METHODS

    if page.name == "torch.md":
        pytest.importorskip("torch", reason="PyTorch is an extra")
    monkeypatch.chdir(tmp_path)
    before = dict(METHODS)
    module = types.ModuleType("documentation")
    monkeypatch.setitem(sys.modules, "documentation", module)
    try:
        for block in blocks(page, "python"):
            exec(compile(block, page.name, "exec"), module.__dict__)
    finally:
        METHODS.clear()
        METHODS.update(before)


def test_the_experiment_in_the_readme_is_valid() -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
    assert Experiment.from_config(tomllib.loads(text)).method.name == "fedu"


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    command = next(line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines() if "pytest" in line)
    assert command in (ROOT / ".ci/run").read_text().splitlines()


def test_every_method_is_in_the_readme() -> None:
    from coterie import METHODS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_of_methods_and_channels_are_up_to_date() -> None:
    import runpy

    for name, text in runpy.run_path(str(ROOT / "tools/methods_page.py"))["pages"]().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run: python tools/methods_page.py"
