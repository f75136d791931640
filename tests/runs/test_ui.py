"""The page over runs: for this machine alone, read only, and nothing but what it lists."""

from __future__ import annotations

import http.client
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie import InvalidInput
from coterie.runs.watching.live import LIVE, who
from coterie.runs.watching.server import Server, serve
from tests.support.reports import HOSTILE

NAME = HOSTILE.replace("/", "∕").replace("\u2028", "")
"""A folder's name can hold no slash."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs, one of them under way, a report, and things that are nobody's business."""
    root = tmp_path / "root"
    for name, state in (("ended", {"finished": True, "rounds": 4}), (NAME, None)):
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text('[method]\nname = "fedu"\n[training]\nrounds = 4\n')
        if state is not None:
            (folder / "status.json").write_text(json.dumps(state))
            continue
        now = who()
        live = {**now, "begun": now["at"], "first": now["at"], "since": 0, "round": 2, "rounds": 4}
        live["metric"] = {"name": "accuracy", "title": HOSTILE, "higher": True, "percent": True}
        live["curve"] = [[0, 0.1, 0, 0], [1, 0.5, 10, 10], [2, 0.75, 20, 20]]
        (folder / LIVE).write_text(json.dumps(live))
    (root / "ended" / "report.html").write_text("<p>a report</p>")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.toml").write_text("")
    (tmp_path / "secret" / "report.html").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "sly").mkdir()
    (root / "sly" / "config.toml").write_text('[method]\nname = "fedu"\n')
    (root / "sly" / "report.html").symlink_to(tmp_path / "secret" / "report.html")
    return root


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    with serve(root) as running:
        yield running


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.http.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}/"


def test_runs_are_told(server: Server) -> None:
    status, text, headers = ask(server, "/runs.json")
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    told = json.loads(text)
    states = {run["name"]: (run["state"], run["round"], run["value"]) for run in told["runs"]}
    assert states["ended"] == ("finished", 0, "")
    assert states[NAME] == ("running", 2, "75.00%")
    assert "link" not in states


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example"]
)
def test_another_host_is_refused(server: Server, host: str) -> None:
    for path in ("/", "/runs.json", "/report?of=ended"):
        status, text, _ = ask(server, path, Host=host)
        assert (status, "for this machine alone" in text) == (403, True)
    assert ask(server, "/", Host=f"localhost:{server.port}")[0] == 200


def test_only_reports_that_are_listed_are_given(server: Server) -> None:
    assert ask(server, "/report?of=ended")[:2] == (200, "<p>a report</p>")
    for name in ("..", "../secret", "link", "sly", "/etc", "%2e%2e/secret", "ended/..", "", "%00"):
        status, text, _ = ask(server, f"/report?of={name}")
        assert (status, "secret" not in text) == (404, True), name
    for path in (
        "/../secret/report.html",
        "/ended/report.html",
        "/%2e%2e/secret/report.html",
    ):
        assert ask(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(server: Server, method: str) -> None:
    assert ask(server, "/", method)[0] == 501


def test_head_has_no_body(server: Server) -> None:
    status, text, headers = ask(server, "/", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 100_000


def test_a_port_that_is_taken_is_said(server: Server, root: Path) -> None:
    with pytest.raises(InvalidInput, match=f"port {server.port} cannot be listened on"):
        Server(root, server.port)
    with pytest.raises(InvalidInput, match="port 99999 cannot be listened on"):
        Server(root, 99999)


def test_the_page_follows_the_runs(server: Server, root: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    complaints: list[str] = []
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        page.wait_for_selector("#figure-runs .chart svg")
        assert page.locator("#summary").inner_text() == "3 runs: 1 ended, 1 under way."
        assert page.locator("#runs tbody tr").count() == 3
        assert NAME in page.locator("#methods").text_content()
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("#runs th", has_text="state").locator("button").click()
        live = json.loads((root / NAME / LIVE).read_text())
        live["curve"].append([3, 0.875, 30, 30])
        (root / NAME / LIVE).write_text(json.dumps(live | {"round": 3}))
        page.wait_for_function(
            "document.querySelector('#runs').textContent.includes('87.50%')", timeout=10_000
        )
        assert "3 of 4" in page.locator("#runs").inner_text()
        order = page.locator("#runs th", has_text="state").get_attribute("aria-sort")
        assert order == "descending", "how it is sorted stays"
        assert page.locator("#reports a").all_inner_texts() == ["Report of ended", "Report of sly"]
        browser.close()
    assert complaints == []
