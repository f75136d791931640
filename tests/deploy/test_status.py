"""`coterie status`: watching a run, and when certificates end."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.cli.main import app
from coterie.core.errors import InvalidInput
from coterie.core.files import write_json
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.identity import NodeIdentity
from coterie.deploy.statuses import note_certificate, read_statuses
from coterie.deploy.zenoh.passport import Passport

NOW = datetime.now(UTC)


def said(t: int, rounds: int = 3) -> dict[str, Any]:
    facts = {"name": "wards", "method": "fedu", "round": t, "rounds": rounds, "up": t, "down": 0}
    return {**facts, "finished": t == rounds, "clients": [], "written": time.time()}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    (tmp_path / "hub" / "wards").mkdir(parents=True)
    return tmp_path / "hub"


def watched(hub: Path, *options: str) -> list[str]:
    """What `status --watch` says of a run that begins later and has three rounds."""
    path = hub / "wards" / "status.json"

    def work() -> None:
        for t in range(1, 4):
            time.sleep(0.5)
            write_json(path, said(t))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        done = CliRunner().invoke(app, ["status", str(hub), "--watch", "--every", "0.1", *options])
    finally:
        thread.join()
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_watching_ends_with_the_run(hub: Path) -> None:
    lines = watched(hub)
    assert lines == [
        "wards · fedu · round 1 of 3 · 1 B up, 0 B down",
        "wards · fedu · round 2 of 3 · 2 B up, 0 B down",
        "wards · fedu · finished · 3 B up, 0 B down",
    ]


def test_watching_as_json(hub: Path) -> None:
    assert [json.loads(line)["round"] for line in watched(hub, "--json")] == [1, 2, 3]


@pytest.mark.parametrize(("days", "warned"), [(29, True), (31, False)])
def test_the_end_of_a_certificate_is_told_at_the_start_and_in_the_status(
    tmp_path: Path, hub: Path, days: int, warned: bool
) -> None:
    keys.init(tmp_path / "keys", "lab", now=datetime.now(UTC) - timedelta(days=1))
    began = datetime.now(UTC) - timedelta(hours=1)
    place = keys.issue(tmp_path / "keys", "hub", days=days, role="hub", now=began)
    identity, sentences = NodeIdentity.load(place), list[str]()
    passport = Passport.shown(identity, sentences.append)
    assert len(sentences) == warned
    passport.check()
    assert len(sentences) == warned  # and not again and again
    passport.seen.clear()  # a day later it is another sentence
    passport.check()
    assert len(sentences) == 2 * warned
    del sentences[1:]
    if warned:
        assert sentences[0].startswith("the certificate of 'hub' ends in 28 days (")
        assert "coterie keys issue FOLDER hub --renew" in sentences[0]
    write_json(hub / "wards" / "status.json", said(1))
    note_certificate(hub, identity)
    (status,) = read_statuses(hub)
    assert status["certificate"]["expires"] == identity.expires.timestamp()
    done = CliRunner().invoke(app, ["status", str(hub)])
    text = " ".join(done.stdout.split())
    assert f"certificate of hub until {identity.expires:%Y-%m-%d}" in text
    assert (": ends in 28 days" in text) is warned
    listed = CliRunner().invoke(app, ["keys", "list", str(tmp_path / "keys")])
    assert ("(in 28 days)" in listed.stdout) is warned


def test_the_end_of_the_ca_is_told_as_well(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys", "lab", days=40)
    place = keys.issue(tmp_path / "keys", "ward-a", days=40)
    identity = NodeIdentity.load(place)
    assert identity.warning() == ""
    renewed = dataclasses.replace(identity, expires=NOW + timedelta(days=400))
    later = renewed.warning(NOW + timedelta(days=20))
    assert later.startswith("the federation's CA ends in ")


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"round": float("inf")}, "round is inf, but must be a whole number"),
        ({"rounds": "3"}, "rounds is '3', but must be a whole number"),
        ({"up": None}, "up is None, but must be a whole number"),
        ({"written": float("nan")}, "written is nan, but must be a time"),
        ({"name": ...}, "it has no name"),
    ],
)
def test_a_damaged_status_is_called_that(hub: Path, facts: dict[str, Any], sentence: str) -> None:
    found = {key: value for key, value in (said(1) | facts).items() if value is not ...}
    path = hub / "wards" / "status.json"
    path.write_text(json.dumps(found))
    with pytest.raises(InvalidInput) as refused:
        read_statuses(hub)
    assert str(refused.value) == f"{str(path)!r} is damaged: {sentence}."
    path.write_text('{"finished": true, "rounds": 3}')  # a run's
    with pytest.raises(InvalidInput, match="is not the folder of a hub"):
        read_statuses(hub)
