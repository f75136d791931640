"""A page over the runs of a folder, on this machine alone.

It listens on 127.0.0.1 and reads only. Requests whose Host is not this very place are refused, so a
page of somebody else cannot reach it under a name of its own (DNS rebinding). No path comes from a
request: a report is asked for by its place in the list of those that were found.
"""

from __future__ import annotations

import contextlib
import html
import json
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from coterie.core.errors import InvalidInput
from coterie.report import parts
from coterie.report.drawn import on_one_line, thinned
from coterie.runs.watching.seen import Overview, Watcher

SCRIPTS = (*parts.LIBRARIES, "charts.js", "page.js", "ui.js")
MOST_POINTS = 100
LEAST = 0.5
"""Seconds between two looks at the folder, however many pages ask."""


class Server:
    """A server that is running; `wait` returns when it was closed."""

    def __init__(self, root: Path, port: int) -> None:
        self.watcher, self.root = Watcher(root), root
        self.lock, self.looked, self.seen = threading.Lock(), 0.0, Overview((), False)
        self.page = _page(root).encode()
        try:
            self.http = _Http(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(
                f"port {port} cannot be listened on: {why}; choose another with --port."
            ) from None
        self.http.owner = self
        self.port = int(self.http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def look(self) -> Overview:
        with self.lock:
            if time.monotonic() - self.looked > LEAST:
                self.seen, self.looked = self.watcher.look(), time.monotonic()
            return self.seen

    def wait(self) -> None:
        self.thread.join()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@contextlib.contextmanager
def serve(root: Path, port: int = 0) -> Iterator[Server]:
    server = Server(root, port)
    try:
        yield server
    finally:
        server.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    owner: Server


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "coterie", ""
    timeout = 30
    HEADERS: ClassVar[dict[str, str]] = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def do_GET(self) -> None:
        owner = self.server.owner
        names = {f"{name}:{owner.port}" for name in ("127.0.0.1", "localhost")}
        if self.headers.get_all("Host", []) not in [[name] for name in names]:
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for this machine alone")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            self._send(owner.page, "text/html; charset=utf-8")
        elif asked.path == "/runs.json":
            self._send(json.dumps(told(owner.look())).encode(), "application/json")
        elif asked.path == "/report":
            self._report(parse_qs(asked.query).get("of", [""])[0])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    do_HEAD = do_GET

    def _report(self, name: str) -> None:
        owner = self.server.owner
        root = owner.root.resolve()
        file = root / name / "report.html" if name in owner.look().reports else None
        if file is None or not file.resolve().is_relative_to(root):
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such report")
            return
        try:
            self._send(file.read_bytes(), "text/html; charset=utf-8")
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "the report is gone")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(f"{why}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed for each request."""


def told(seen: Overview) -> dict[str, Any]:
    """What the page is told, curves thinned."""
    runs = []
    for run in seen.runs:
        keep = [run.curve[i] for i in thinned(len(run.curve), MOST_POINTS)] if run.curve else []
        unit = 100.0 if run.metric.get("percent") else 1.0
        runs.append(
            {
                "name": run.name,
                "method": run.method,
                "seed": run.seed,
                "state": run.state,
                "round": run.round,
                "rounds": run.rounds,
                "left": run.left,
                "metric": on_one_line(str(run.metric.get("title", ""))),
                "percent": bool(run.metric.get("percent")),
                "value": run.value,
                "bytes": run.bytes if run.curve else None,
                "curve": [[t, None if v is None else unit * v] for t, v, _, _ in keep],
            }
        )
    return {"runs": runs, "busy": seen.busy, "reports": list(seen.reports)}


def _page(root: Path) -> str:
    name = root.resolve().name or str(root)
    note = "Mean over clients, on test data."
    drawn = parts.figure("runs", "Score over rounds", note, wide=True)
    body = (
        '<p id="summary" aria-live="polite">Reading …</p><div id="reports"></div>'
        '<h2 id="figures">While they train</h2>'
        '<fieldset id="methods"><legend>Runs in the figure</legend></fieldset>'
        f'<div class="figures">{drawn}</div>'
        '<h2>Runs</h2><div class="scroll" id="runs" tabindex="0" role="region"'
        ' aria-label="table"></div>'
        f'<p class="soft">{html.escape(str(root))}; read again every two seconds.</p>'
    )
    return parts.document(f"Runs in {name}", body, {}, SCRIPTS, "'self'")
