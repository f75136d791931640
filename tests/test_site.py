"""The documentation as a site: built strictly, complete, and with nothing from another host."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def chromium(**look: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page of a browser, and what went wrong in it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    flags, wrong = ["--no-sandbox"] if os.geteuid() == 0 else [], list[str]()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=flags)
        page = browser.new_context(**look).new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: wrong.append(str(e)))
        yield page, wrong
        browser.close()


def test_the_site_is_searched_from_disk(site: Path) -> None:
    """Where browsers start no worker; nothing is asked of another host."""
    with chromium() as (page, wrong):
        page.on("request", lambda r: r.url.startswith("http") and wrong.append(r.url))
        page.goto((site / "index.html").as_uri())
        page.locator("[data-md-component=search]").first.wait_for(state="attached")
        page.keyboard.press("/")
        page.keyboard.type("sign-flip")
        hit = page.locator("a[href*='attacks.html?h=sign-flip']").first
        hit.wait_for(timeout=60_000)
        hit.click()
        page.wait_for_url("**/attacks.html*")
        assert page.locator("h1").inner_text().startswith("Attacks")
    assert wrong == []


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.slow
def test_every_page_in_a_browser(site: Path) -> None:
    """On a phone: nothing from elsewhere is asked for, nothing fails, no page is too wide."""
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    with chromium(viewport={"width": 390, "height": 844}) as (page, wrong):
        page.on("request", lambda r: None if r.url.startswith(home) else wrong.append(r.url))
        for path in sorted(site.rglob("*.html")):
            page.goto(home + str(path.relative_to(site)))
            if page.evaluate("document.documentElement.scrollWidth") > 390:
                wrong.append(f"{path.name} is too wide")
    server.shutdown()
    assert wrong == []
