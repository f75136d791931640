"""The house is as its papers say: rooms, sizes of files, pages of the site, what is shipped."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import coterie

ROOT = Path(__file__).parents[1]
ROOMS = ROOT / "src" / "coterie"
LONGEST = 400
"""Lines of a file."""


def contract() -> list[str]:
    """The rooms of the import contract, the lowest first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = config["tool"]["importlinter"]["contracts"]
    return list(reversed(layers["layers"]))


def test_the_map_and_the_import_contract_name_the_same_rooms_in_the_same_order() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"## The map\n+```\w*\n(.*?)```", text, re.DOTALL)
    drawn = re.findall(r"^ *(\w+)/ ", block, re.MULTILINE)
    assert drawn == contract()


def test_every_room_is_in_the_contract_and_nothing_lies_outside_the_rooms() -> None:
    assert {p.parent.name for p in ROOMS.glob("*/__init__.py")} == set(contract())
    assert {p.name for p in ROOMS.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_no_file_is_too_long() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("src", "tests", "bench", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}


def test_every_page_is_in_the_sites_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)$", menu, re.MULTILINE)
    own = [name for name in listed if not name.startswith("repository/")]  # copies: tools/site.py
    pages = (ROOT / "docs").rglob("*.md")
    assert sorted(own) == sorted(str(p.relative_to(ROOT / "docs")) for p in pages)


def test_ci_checks_what_contributing_says() -> None:
    ran = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    site = "python tools/site.py"
    for command in ("ruff check", "ruff format --check", "mypy", "lint-imports", site):
        assert f".venv/bin/{command}" in ran
        assert f"`{command}" in text
    assert "run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")


def test_types_are_shipped() -> None:
    assert files(coterie).joinpath("py.typed").is_file()
