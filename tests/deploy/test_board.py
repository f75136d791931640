"""/metrics and /healthz of a participant, on this machine alone."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coterie.core.errors import InvalidInput
from coterie.deploy.board import Board, shown
from coterie.deploy.ports import free_port

HUB = {
    "name": "wards",
    "method": "fedu",
    "round": 7,
    "rounds": 100,
    "finished": False,
    "up": 1200,
    "down": 800,
    "written": 1.75e9,
    "clients": [
        {"name": "ward-a", "up": 700, "down": 400, "rounds": 7, "last_seen": 5.0, "rejected": 2},
        {"name": 'b"\n', "up": 500, "down": 400, "rounds": 6, "last_seen": 0.0, "rejected": 0},
    ],
}
PEER = {
    "name": "near",
    "round": 3,
    "rounds": 9,
    "finished": True,
    "up": 10,
    "down": 20,
    "written": 1.75e9,
    "neighbours": [{"name": "ward-b", "active": True, "round": 2, "rejected": 1, "entry": -1}],
}


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = (one.labels[key] for key in sorted(one.labels, reverse=True))  # plan first
            found[one.name, *labels] = one.value
    return found


def test_metrics_are_what_the_status_says() -> None:
    expires, port = datetime(2030, 1, 1, tzinfo=UTC), free_port()
    board = Board("hub", "hub", expires, lambda: True, lambda: [HUB, PEER])
    with shown(board, port):
        code, text = get(port, "/metrics")
    found = samples(text)
    assert code == 200
    assert found["coterie_round", "wards"] == 7
    assert found["coterie_rounds", "wards"] == 100
    assert (found["coterie_finished", "wards"], found["coterie_finished", "near"]) == (0, 1)
    assert found["coterie_bytes_total", "wards", "up"] == 1200
    assert found["coterie_client_bytes_down_total", "wards", "ward-a"] == 400
    assert found["coterie_client_rejected_total", "wards", "ward-a"] == 2
    assert found["coterie_client_rounds_total", "wards", 'b"\n'] == 6
    assert found["coterie_client_last_seen_timestamp_seconds", "wards", "ward-a"] == 5.0
    assert found["coterie_neighbour_rejected", "near", "ward-b"] == 1
    assert found["coterie_certificate_expires_timestamp_seconds",] == expires.timestamp()
    assert found["coterie_connected",] == 1


def test_health_follows_the_connection_and_nothing_else_is_served() -> None:
    state: dict[str, Any] = {"well": False}
    board, port = Board("client"), free_port()
    with shown(board, port):
        assert get(port, "/healthz")[0] == 503  # nothing is known yet
        board.connected = lambda: state["well"]
        assert get(port, "/healthz") == (503, "service unavailable\n")
        state["well"] = True
        assert get(port, "/healthz") == (200, "ok\n")
        board.connected = lambda: state["gone"]  # raises
        assert get(port, "/healthz")[0] == 503
        assert get(port, "/")[0] == get(port, "/metrics/../etc/passwd")[0] == 404
        with pytest.raises(InvalidInput, match=rf"--metrics is {port}, but nobody can listen"):
            shown(Board("peer"), port).__enter__()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 2.0)


def test_off_by_default_and_for_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("wsgiref.simple_server.make_server", lambda *a, **k: made.append(a))
    with shown(Board("hub"), None):
        pass
    assert made == []
    with pytest.raises(AttributeError):  # there is no server to serve
        shown(Board("hub"), 1234).__enter__()
    assert made[0][:2] == ("127.0.0.1", 1234)


def test_without_the_package_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[metrics\]'"):
        shown(Board("hub"), free_port()).__enter__()
