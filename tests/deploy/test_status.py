"""`coterie status`: watching a run, and when certificates end."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.cli.main import app
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
    keys.init(tmp_path / "keys", "lab")
    place = keys.issue(tmp_path / "keys", "hub", days=days, role="hub")
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
        assert re.match(r"the certificate of 'hub' ends in 2[89] days", sentences[0])
        assert "coterie keys issue FOLDER hub --renew" in sentences[0]
    write_json(hub / "wards" / "status.json", said(1))
    note_certificate(hub, identity)
    (status,) = read_statuses(hub)
    assert status["certificate"]["expires"] == identity.expires.timestamp()
    done = CliRunner().invoke(app, ["status", str(hub)])
    text = " ".join(done.stdout.split())
    assert f"certificate of hub until {identity.expires:%Y-%m-%d}" in text
    assert ("days left" in text) is warned


def test_the_end_of_the_ca_is_told_as_well(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys", "lab", days=40)
    place = keys.issue(tmp_path / "keys", "ward-a", days=40)
    identity = NodeIdentity.load(place)
    assert identity.warning() == ""
    renewed = dataclasses.replace(identity, expires=NOW + timedelta(days=400))
    later = renewed.warning(NOW + timedelta(days=20))
    assert later.startswith("the federation's CA ends in ")
