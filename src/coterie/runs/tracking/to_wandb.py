"""Weights & Biases. Nothing leaves the machine unless =online is asked for; `wandb sync` sends it
later.
"""

from __future__ import annotations

import secrets
from typing import Any

import wandb

from coterie.runs.tracking.base import Place


class Sink:
    """Into `wandb/` in the run's folder; with `where` "online" to the server, too."""

    def __init__(self, place: Place, config: dict[str, Any], step: int) -> None:
        mode: Any = place.where or "offline"
        called = place.known.get("wandb") or secrets.token_hex(4)
        self.run = wandb.init(
            project="coterie",
            name=place.name,
            group=place.group or None,
            dir=str(place.folder),
            config=config,
            id=called,
            resume="allow" if mode == "online" else None,
            mode=mode,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        place.remember("wandb", called)

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)

    def close(self, *, failed: bool) -> None:
        self.run.finish(exit_code=1 if failed else 0)
