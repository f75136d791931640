"""Coterie's messages as Flower's records."""

from __future__ import annotations

from typing import Any

from coterie.core.errors import CoterieError
from coterie.deploy.flower.library import ConfigRecord, RecordDict
from coterie.deploy.messages import Rejected, Reply, Request, envelope, opened

RECORD = "coterie"


def packed(message: Request | Reply) -> RecordDict:
    """The envelope as text, the frames as bytes: exact, and no dearer than the bytes themselves."""
    values: dict[str, Any] = {"envelope": envelope(message)}
    if message.frames:
        values["frames"] = list(message.frames)
    return RecordDict({RECORD: ConfigRecord(values)})


def unpacked(kind: type[Any], content: RecordDict) -> Any:
    """A Request or Reply. Raises Rejected, also on a sentence that was sent in its place."""
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord) or not set(record) <= {"envelope", "frames", "error"}:
        raise Rejected("the message is not one of coterie's.")
    if isinstance(error := record.get("error"), str):
        raise Refusal(one_line(error))
    text, frames = record.get("envelope"), record.get("frames", [])
    if not isinstance(text, str) or not isinstance(frames, list):
        raise Rejected("the message is not one of coterie's.")
    return opened(kind, text, tuple(frames))  # type: ignore[arg-type]


class Refusal(CoterieError):
    """A client says why it cannot answer."""


def one_line(text: str) -> str:
    """What somebody else has written, fit for a log: one line, and nothing that moves a terminal's
    cursor.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:300]
