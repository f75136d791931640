"""What others have written is shown to people without moving their terminals."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from coterie.cli.deploy import status_table
from coterie.deploy import messages
from coterie.deploy.messages import LONGEST_TEXT, Refusal, Rejected, Reply, envelope, opened

HOSTILE = "\x1b[2J\x1b]0;owned\x07[/x][red]\r\nround 9: finished.\u202e\u009b31m" + "x" * 5000


def told(text: str) -> str:
    """What a reply with this envelope makes the hub say."""
    with pytest.raises((Rejected, Refusal)) as refused:
        opened(Reply, text, ())
    return str(refused.value)


def reply(**fields: Any) -> str:
    good = json.loads(envelope(Reply("f" * 32, 0, 5)))
    return json.dumps(good | fields)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"error": HOSTILE}),
        reply(plan=HOSTILE),
        reply(round=HOSTILE),
        reply(scores={HOSTILE: 1.0}),
        reply(scores={"test/[/x]": 1.0}),
        reply(scores={"test/personal": HOSTILE}),
        json.dumps({HOSTILE: 1}),
    ],
)
def test_sentences_about_a_message_are_one_printable_line(text: str) -> None:
    assert told(text).isprintable()
    assert len(told(text)) <= LONGEST_TEXT


def test_another_plan_is_named_by_letters_only() -> None:
    with pytest.raises(Rejected) as refused:
        messages.check_plan("f" * 32, "\x1b[2J\x1b[31m")
    assert str(refused.value).isprintable()


def test_the_table_of_a_hub_survives_any_status() -> None:
    """Also one that was written before scores had to have decent names."""
    client = {
        "name": "ward-a[/x]",
        **dict.fromkeys(("up", "down", "rounds", "last_seen", "rejected"), 1),
        "scores": {"test/[/x][blink]": 0.5},
    }
    status = {
        **dict.fromkeys(("up", "down", "round", "rounds", "written"), 1),
        "name": "[/x]",
        "method": "[red]",
        "finished": False,
        "metric": {"title": "[/x]", "higher": True},
        "clients": [client],
    }
    out = io.StringIO()
    Console(file=out, width=200).print(status_table(status))
    assert "[/x][blink] 0.500" in out.getvalue()
    assert "ward-a[/x]" in out.getvalue()
