"""What a run tells people, and how it ends when nobody answers.

Sentences go to whoever looks on, and to files that are put aside when they are full: `NAME.log` of
a hub's plan, and, where `--log` asks for it, one JSON object a line, for machines.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from coterie.core.errors import CoterieError, InvalidInput

Say = Callable[[str], None]
LARGEST, KEPT = 10_000_000, 5
"""Bytes of a log until it is put aside, and how many of those are kept."""


class GaveUp(CoterieError):
    """Somebody was silent for too long. Nothing is lost; the same command goes on."""

    exit_code = 4


class _Own(RotatingFileHandler):
    """A log that only its owner may read."""

    def _open(self) -> io.TextIOWrapper:
        Path(self.baseFilename).touch(0o600)  # as it is, if it is there
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk stops no run on account of its log."""


class _Lines(logging.Formatter):
    """A record as one JSON object; `who` says whose they are."""

    def __init__(self, who: dict[str, str]) -> None:
        super().__init__()
        self.who = who

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {"time": moment, "level": record.levelname.lower(), **self.who}
        return json.dumps({**facts, "message": record.getMessage()})


def _handler(path: Path, form: logging.Formatter) -> _Own:
    try:
        handler = _Own(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8", delay=False)
    except OSError as error:
        raise InvalidInput(
            f"the log {str(path)!r} cannot be written: {error.strerror or error}."
        ) from None
    handler.setFormatter(form)
    return handler


def _emit(handler: logging.Handler, sentence: str, level: int = logging.INFO) -> None:
    handler.handle(logging.LogRecord("coterie", level, "", 0, "%s", (sentence,), None))


@contextlib.contextmanager
def also_to(path: Path | None, say: Say, **who: str) -> Iterator[Say]:
    """Gives what says a sentence as `say` does and writes it to a log of JSON lines, if there is
    one; how the block ends, if it fails, is written too.
    """
    if path is None:
        yield say
        return
    handler = _handler(path, _Lines(who))

    def both(sentence: str) -> None:
        say(sentence)
        _emit(handler, sentence)

    try:
        yield both
    except CoterieError as error:
        _emit(handler, str(error), logging.ERROR)
        raise
    finally:
        handler.close()


class Log:
    """Sentences to whoever looks on, and to a file."""

    def __init__(self, path: Path, say: Say) -> None:
        self.path, self.tell = path, say
        self._handler = _handler(path, _Text())

    def say(self, sentence: str) -> None:
        self.tell(sentence)
        _emit(self._handler, sentence)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return f"{moment} {record.getMessage()}"
