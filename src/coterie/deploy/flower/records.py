"""Coterie's messages as Flower's records."""

from __future__ import annotations

from typing import Any

from coterie.deploy.flower.library import ConfigRecord, RecordDict
from coterie.deploy.messages import Rejected, Reply, Request, envelope, opened, refusal

RECORD = "coterie"


def packed(message: Request | Reply) -> RecordDict:
    """The envelope as text, the frames as bytes: exact, and no dearer than the bytes themselves."""
    values: dict[str, Any] = {"envelope": envelope(message)}
    if message.frames:
        values["frames"] = list(message.frames)
    return RecordDict({RECORD: ConfigRecord(values)})


def refused(error: Exception) -> RecordDict:
    """In place of a reply: why there is none."""
    return RecordDict({RECORD: ConfigRecord({"envelope": refusal(error)})})


def unpacked(kind: type[Any], content: RecordDict) -> Any:
    """A Request or Reply. Raises Rejected, and Refusal on a sentence that was sent instead."""
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord) or not set(record) <= {"envelope", "frames"}:
        raise Rejected("the message is not one of coterie's.")
    text, frames = record.get("envelope"), record.get("frames", [])
    if not isinstance(text, str) or not isinstance(frames, list):
        raise Rejected("the message is not one of coterie's.")
    return opened(kind, text, tuple(frames))  # type: ignore[arg-type]
