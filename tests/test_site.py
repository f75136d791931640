"""The documentation as a site: built strictly, complete, and with nothing from another host."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the extra [docs] builds the site")
pytest.importorskip("latex2mathml", reason="the extra [docs] builds the site")

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".cache/site"
TOOL = runpy.run_path(str(ROOT / "tools/site.py"))


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as CI does it."""
    done = subprocess.run(
        [sys.executable, "tools/site.py"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


def test_every_page_is_on_the_site_with_its_equations_rendered(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        text = made.read_text(encoding="utf-8")
        bare = re.sub(r"<(code|pre|annotation)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "```math" not in bare, page
        assert not re.search(r"\$[\\_a-zA-Z]", bare), page
        assert not re.search(r"<p>[;:,.)]", text), f"an equation cuts a paragraph of {page.name}"
    fedu = (site / "methods/fedu.html").read_text(encoding="utf-8")
    assert fedu.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') == 3


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    assert TOOL["from_elsewhere"](site) == []
    assert len(list(site.rglob("*.html"))) > 60


def test_what_is_loaded_from_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">fine</a><script src="https://cdn.example.org/x.js"></script>'
        '<link href="//fonts.example.org/f.css" rel="stylesheet"><link rel="canonical" href="https://x">'
    )
    (tmp_path / "b.css").write_text("@font-face { src: url(https://fonts.example.org/f.woff2) }")
    found = TOOL["from_elsewhere"](tmp_path)
    assert [line.split(": ", 1)[1] for line in found] == [
        "https://cdn.example.org/x.js",
        "//fonts.example.org/f.css",
        "https://fonts.example.org/f.woff2",
    ]


def test_equations_become_mathml_and_code_stays() -> None:
    made = TOOL["with_mathml"]("a `$x$` and $w_{k}$, 5$ or 6$\n\n```math\n\\min f\n```\n")
    assert "`$x$`" in made
    assert "<msub><mi>w</mi>" in made
    assert "5$ or 6$" in made
    assert '<div class="equation"><math' in made


@pytest.mark.skipif(importlib.util.find_spec("mkdocstrings") is None, reason="the extra [docs]")
def test_the_reference_has_every_public_name(site: Path) -> None:
    import coterie

    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").glob("*.html"))
    methods = {cls.__name__ for cls in coterie.METHODS.values()}
    missing = [
        name
        for name in coterie.__all__
        if name not in methods | {"__version__"} and f'id="coterie.{name}"' not in text
    ]
    assert missing == []
