"""What a run tells people, and how it ends when nobody answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from coterie.core.errors import CoterieError

Say = Callable[[str], None]


class GaveUp(CoterieError):
    """Somebody was silent for too long. Nothing is lost; the same command goes on."""

    exit_code = 4


class Log:
    """Sentences to whoever looks on, and to a file."""

    def __init__(self, path: Path, say: Say) -> None:
        self.path, self.tell = path, say

    def say(self, sentence: str) -> None:
        self.tell(sentence)
        with self.path.open("a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")
