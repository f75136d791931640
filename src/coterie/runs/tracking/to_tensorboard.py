"""TensorBoard: event files, `tensorboard --logdir FOLDER` shows them. TensorFlow is not needed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from coterie.runs.tracking.base import Place


class Sink:
    """Into `tensorboard/` in the run's folder, or into a folder of its name in `where`."""

    def __init__(self, place: Place, config: dict[str, Any], step: int) -> None:
        where = (
            place.folder / "tensorboard" if place.where is None else Path(place.where) / place.name
        )
        self.writer = EventFileWriter(str(where))
        # What was told of later rounds before a kill is told again: TensorBoard drops it.
        start = SessionLog(status=SessionLog.START)
        self.writer.add_event(Event(wall_time=time.time(), step=step, session_log=start))
        text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
        summary = text_pb("config", f"```\n{text}\n```")
        self._add(step, Summary.FromString(summary.SerializeToString()))

    def _add(self, step: int, summary: Any) -> None:
        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def log(self, step: int, values: dict[str, float]) -> None:
        told = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, Summary(value=told))
        self.writer.flush()

    def close(self, *, failed: bool) -> None:
        self.writer.close()
