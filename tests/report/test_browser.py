"""Reports in a real browser: they open from disk without an error, tables sort, figures answer to
the pointer and to the keyboard, and a phone can read them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.coupling.graph import ring
from coterie.report.attack_page import attack_page
from coterie.report.attacked import Cell, Grid
from coterie.report.measures import sheets
from coterie.report.page import page
from tests.support.reports import HOSTILE, comparison

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium; on Debian: apt-get install chromium"
)
Open = Callable[..., Any]
# Figures are filled after the page is there: a chart has been drawn when words stand in it.
DRAWN = "() => [...document.querySelectorAll('.chart svg')].every(s => s.querySelector('text'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # As root, and in containers, Chromium cannot make its sandbox; the pages are our own.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=BROWSER, args=flags)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = comparison(names=[HOSTILE, "ward a", "ward b", "ward b", "", "é"])
    cells = {
        (label, attack, f): Cell(
            (None, None) if collapses and f else (0.9 - f, 0.8 - f),
            (7, 7) if collapses and f else (None, None),
            () if label == "Local" else (-0.1, -0.1),
        )
        for label, collapses in (("Local", False), ("FedU", False), (HOSTILE, True))
        for attack in ("sign-flip", HOSTILE)
        for f in (0.0, 0.2)
    }
    grid = Grid(
        "made", ["Local", "FedU", HOSTILE], ["sign-flip", HOSTILE], [0.0, 0.2], [0, 1], cells
    )
    pages = {
        "comparison": page(made, "", sheets(made), {"FedU": ring(6)}),
        "attack": attack_page(grid),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Open]:
    """Opens a page from disk; at the end it must not have complained."""
    complaints: list[str] = []
    contexts = []

    def open_(name: str = "comparison", width: int = 1200, scheme: str = "light") -> Any:
        size = {"width": width, "height": 800}
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
        contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.on("request", lambda r: r.url.startswith("file:") or complaints.append(r.url))
        found.goto(files[name].as_uri())
        found.wait_for_selector(".chart svg")
        found.wait_for_function(DRAWN)
        return found

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def column(table: Any, number: int) -> list[str]:
    return table.locator(f"tbody tr td:nth-child({number})").all_inner_texts()


def test_hostile_names_do_nothing_and_every_figure_is_drawn(opened: Open) -> None:
    found = opened()
    assert found.evaluate("window.hit") is None
    for figure in found.locator("figure[id]").all():
        assert figure.locator(".chart svg").count() == 1, figure.get_attribute("id")
    assert HOSTILE.replace("\u2028", "") in found.locator("#methods").inner_text().replace(
        "\u2028", ""
    )
    assert found.locator("#methods input").count() == 4


def test_a_table_sorts_by_numbers_with_mouse_and_keyboard(opened: Open) -> None:
    found = opened()
    table = found.locator("#table + div table")
    head = table.locator("th", has_text="mean").first
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = [float(text.split()[0]) for text in column(table, 2)]
    assert falling == sorted(falling, reverse=True)
    found.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(text.split()[0]) for text in column(table, 2)]
    assert rising == falling[::-1]
    bytes_ = table.locator("th", has_text="up").locator("button")
    bytes_.focus()
    found.keyboard.press("Enter")
    place = table.locator("th").all_inner_texts().index(bytes_.inner_text()) + 1
    assert column(table, place)[0].endswith("MB"), "168 kB is less than 1.7 MB"


def test_hover_tells_what_is_under_the_pointer(opened: Open) -> None:
    found = opened()
    chart = found.locator("#figure-curves .chart svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    found.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
    found.wait_for_selector("#tip:not([hidden])")
    told = found.locator("#tip").inner_text()
    for word in ("method", "accuracy", "±", "round", "bytes per client", "gradients per client"):
        assert word in told
    found.mouse.move(2, 2)
    found.wait_for_selector("#tip", state="hidden")


def test_curves_go_over_bytes_and_gradients_and_methods_can_be_left_out(opened: Open) -> None:
    found = opened()
    figure = found.locator("#figure-curves")
    assert "round" in figure.locator(".chart svg").text_content()
    for over, title in (("bytes", "bytes per client"), ("gradients", "gradients per client")):
        found.locator(f'input[value="{over}"]').focus()
        found.keyboard.press("Space")
        found.wait_for_function(
            "title => document.querySelector('#figure-curves .chart').textContent.includes(title)",
            arg=title,
        )
    figure.locator("summary").click()
    figure.locator("details table tbody tr").first.wait_for()  # filled after it was opened
    names = lambda: set(column(figure.locator("details table"), 1))
    assert len(names()) == 4
    found.locator("#methods label", has_text="FedAvg").locator("input").uncheck()
    assert "FedAvg" not in names()
    assert len(names()) == 3


def test_one_client_is_shown_by_choice_by_its_row_and_by_its_point(opened: Open) -> None:
    found = opened()
    facts = found.locator("#client-facts")
    found.locator("#client").select_option("1")
    assert facts.inner_text().startswith("ward a: 10 training rows")
    assert found.locator("#client-table tbody tr").count() == 4
    found.locator('button.client[data-at="5"]').click()
    assert facts.inner_text().startswith("é: ")
    found.locator("#client-near button").first.click()
    assert not facts.inner_text().startswith("é: ")
    before = facts.inner_text()
    points = found.locator("#figure-graph .chart svg .mark-symbol path")
    for i in range(points.count()):
        points.nth(i).click()
        if facts.inner_text() != before:
            break
    assert facts.inner_text() != before


@pytest.mark.parametrize("name", ["comparison", "attack"])
def test_light_dark_and_a_phone(opened: Open, name: str) -> None:
    dark = opened(name, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert dark.evaluate(ground) == "rgb(18, 22, 31)"
    dark.locator("#theme").click()
    assert dark.evaluate(ground) == "rgb(255, 255, 255)"
    dark.wait_for_selector(".chart svg")
    phone = opened(name, width=390)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for chart in phone.locator("figure[id] .chart svg").all():
        assert chart.bounding_box()["width"] <= 390


def test_attacks_have_a_curve_each_and_crosses_for_what_collapsed(opened: Open) -> None:
    found = opened("attack")
    assert found.locator("figure[id] .chart svg").count() == 2
    assert "×" in found.locator("#figure-attack-0 .chart svg").text_content()
    assert found.locator("table").count() >= 2
