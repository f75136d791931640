"""Pictures of the report for the documentation, from a finished `coterie demo`, and of `coterie ui`
over a folder in which something trains; or of the site.

    python tools/screenshots.py coterie-demo/report.html docs/images [runs]
    python tools/screenshots.py .cache/site/index.html docs/images

Needs Playwright, Chromium and Pillow (which matplotlib brings).
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from coterie.runs.watching.server import serve

VIEWS = {
    "demo": ("light", 1200, 758, "body"),
    "report-light": ("light", 1200, 1000, "#figures"),
    "report-dark": ("dark", 1200, 1000, "#figure-gains"),
    "report-phone": ("light", 390, 844, "#figures"),
}
SITE = {
    "site-light": ("light", 1320, 900, "index.html"),
    "site-dark": ("dark", 1320, 900, "methods/fedu.html"),
    "site-phone": ("light", 390, 844, "choosing.html"),
}


def taken(page: Page, file: Path) -> None:
    """What is seen, as small as it gets without a loss."""
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(file, optimize=True)
    print(file, file.stat().st_size)


def of_site(browser: Browser, site: Path, folder: Path) -> None:
    for name, (scheme, width, height, place) in SITE.items():
        size = {"width": width, "height": height}
        page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
        page.goto((site / place).resolve().as_uri())
        page.wait_for_timeout(500)
        taken(page, folder / f"{name}.png")


def main(report: Path, folder: Path, runs: Path | None = None) -> None:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        if report.name == "index.html":
            of_site(browser, report.parent, folder)
            return
        for name, (scheme, width, height, place) in VIEWS.items():
            size = {"width": width, "height": height}
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            page.goto(report.resolve().as_uri())
            page.wait_for_selector(".chart svg")
            page.locator(place).evaluate("e => e.scrollIntoView({block: 'start'})")
            box = page.locator("#figure-curves .chart svg").bounding_box()
            if scheme == "light" and name != "demo":
                page.mouse.move(box["x"] + 0.6 * width, box["y"] + 150)
            page.wait_for_timeout(300)
            taken(page, folder / f"{name}.png")
        if runs is not None:
            with serve(runs) as server:
                size = {"width": 1200, "height": 900}
                page = browser.new_context(viewport=size).new_page()
                page.goto(server.url)
                page.wait_for_selector(".chart svg")
                page.wait_for_timeout(1000)
                taken(page, folder / "ui.png")
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
