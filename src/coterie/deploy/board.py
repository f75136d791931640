"""What a running participant shows to machines: /metrics for Prometheus, /healthz for whoever
starts processes again. On this machine only (127.0.0.1), and only where a port is given.

/healthz answers 200 while the hub's gate listens, a client is connected to its hub, a peer to some
neighbour; else 503. That is a matter of being ready: a participant that waits for others is not
helped by starting it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socketserver
import threading
import wsgiref.simple_server
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import coterie
from coterie.core.errors import InvalidInput

Statuses = Callable[[], Collection[dict[str, Any]]]


@dataclasses.dataclass
class Board:
    """Filled in by a participant when it knows; read by the thread that serves."""

    role: str
    name: str = ""
    expires: datetime | None = None
    connected: Callable[[], bool] = lambda: False
    statuses: Statuses = lambda: ()
    """As `coterie status` reads them; a client's have less."""
    refused: Callable[[], Mapping[str, int]] = dict
    """Of a hub: callers that its door did not let in, by reason."""

    def is_well(self) -> bool:
        try:
            return self.connected()
        except Exception:  # of a session that is being closed
            return False


HUBS = {"up": "Bytes that clients sent.", "down": "Bytes that clients were sent."}


class Families:
    """Metrics of a board, made anew each time that somebody asks."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def collect(self) -> Iterator[Any]:
        board = self.board
        yield self._gauge(
            "coterie_info",
            "Who this is.",
            ("role", "name", "version"),
            [((board.role, board.name, coterie.__version__), 1)],
        )
        well = "Whether /healthz says that all is well."
        yield self._gauge("coterie_connected", well, (), [((), board.is_well())])
        if board.expires is not None:
            yield self._gauge(
                "coterie_certificate_expires_timestamp_seconds",
                "When this participant's certificate ends.",
                (),
                [((), board.expires.timestamp())],
            )
        yield self._counter(
            "coterie_door_refused",
            "Callers that the hub's door did not let in, by reason.",
            ("reason",),
            [((reason,), count) for reason, count in dict(board.refused()).items()],
        )
        yield from self._plans([*board.statuses()])

    def _plans(self, found: list[dict[str, Any]]) -> Iterator[Any]:
        for key, words in {
            "round": "The round that is open.",
            "rounds": "Rounds of the plan.",
            "finished": "Whether the plan is over.",
            "written": "When the status was written (seconds since the epoch).",
        }.items():
            rows: list[Any] = [((one["name"],), float(one[key])) for one in found if key in one]
            name = f"coterie_{'status_timestamp_seconds' if key == 'written' else key}"
            yield self._gauge(name, words, ("plan",), rows)
        yield self._counter(
            "coterie_bytes",
            "Bytes billed, by direction.",
            ("plan", "direction"),
            [((one["name"], way), one[way]) for one in found for way in HUBS if way in one],
        )
        whose: list[tuple[str, dict[str, Any]]] = [
            (one["name"], client) for one in found for client in one.get("clients", ())
        ]
        names = ("plan", "client")
        yield self._gauge(
            "coterie_client_last_seen_timestamp_seconds",
            "When a client's last message came; 0: never.",
            names,
            [((plan, one["name"]), one["last_seen"]) for plan, one in whose],
        )
        for key, words in {
            "rounds": "Rounds that a client took part in.",
            "rejected": "Messages of a client that were rejected.",
            **HUBS,
        }.items():
            suffix = f"bytes_{key}" if key in HUBS else key
            rows = [((plan, one["name"]), one[key]) for plan, one in whose]
            yield self._counter(f"coterie_client_{suffix}", words, names, rows)
        near = [(one["name"], n) for one in found for n in one.get("neighbours", ())]
        for key, words in {
            "active": "Whether a neighbour's edge counts.",
            "round": "The round of a neighbour's last message.",
            "rejected": "Messages of a neighbour that were rejected.",
        }.items():
            rows = [((plan, n["name"]), float(n[key])) for plan, n in near]
            yield self._gauge(f"coterie_neighbour_{key}", words, ("plan", "neighbour"), rows)

    def _gauge(self, name: str, help: str, labels: Iterable[str], rows: Iterable[Any]) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        return _filled(GaugeMetricFamily(name, help, labels=[*labels]), rows)

    def _counter(self, name: str, help: str, labels: Iterable[str], rows: Iterable[Any]) -> Any:
        from prometheus_client.core import CounterMetricFamily

        return _filled(CounterMetricFamily(name, help, labels=[*labels]), rows)


def _filled(family: Any, rows: Iterable[Any]) -> Any:
    for labels, value in rows:
        family.add_metric([*map(str, labels)], float(value))
    return family


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    timeout = 10
    """Seconds after which who asks for nothing is hung up on."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _application(board: Board) -> Any:
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(board))  # type: ignore[arg-type]
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start)
        known = path == "/healthz"
        code = "404 Not Found" if not known else "503 Service Unavailable"
        code = "200 OK" if known and board.is_well() else code
        start(code, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{code[4:].lower()}\n".encode()]

    return answer


@contextlib.contextmanager
def shown(board: Board, port: int | None) -> Iterator[Board]:
    """Serve a board while the block runs; nothing where no port is given."""
    if port is None:
        yield board
        return
    try:
        application = _application(board)
    except ImportError:
        raise InvalidInput(
            "--metrics needs the package prometheus-client: pip install 'coterie[metrics]'."
        ) from None
    try:
        server = wsgiref.simple_server.make_server(
            "127.0.0.1", port, application, server_class=_Server, handler_class=_Quiet
        )
    except OSError as error:
        raise InvalidInput(
            f"--metrics is {port}, but nobody can listen there: {error.strerror or error}."
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
    thread.start()
    try:
        yield board
    finally:
        server.shutdown()
        server.server_close()
