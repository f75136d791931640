"""The operator's books, nodes.json: all that was ever issued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.checks import whole_seconds
from coterie.deploy.keys.files import read_bytes, write_bytes

SUPERSEDED = "superseded"
SOON = timedelta(days=30)


@dataclass(frozen=True)
class Issued:
    """One certificate, as nodes.json keeps it."""

    name: str
    role: str
    hosts: tuple[str, ...]
    ips: tuple[str, ...]
    serial: int
    created: datetime
    expires: datetime
    flower_key: str
    revoked: datetime | None = None
    reason: str | None = None

    def status(self, now: datetime | None = None) -> str:
        """valid, expires soon (in less than 30 days), expired or revoked."""
        now = whole_seconds(now)
        if self.revoked is not None:
            return "revoked"
        return (
            "expired"
            if self.expires <= now
            else "expires soon"
            if self.expires - now < SOON
            else "valid"
        )

    def plain(self) -> dict[str, Any]:
        """As JSON keeps it. The serial is text: 160 bits are more than a JSON number may have."""
        times = {
            k: None if (t := getattr(self, k)) is None else t.isoformat()
            for k in ("created", "expires", "revoked")
        }
        return asdict(self) | times | {"serial": f"{self.serial:x}"}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Issued:
        times = {
            k: None if plain[k] is None else datetime.fromisoformat(plain[k])
            for k in ("created", "expires", "revoked")
        }
        return cls(
            **plain
            | times
            | {
                "serial": int(plain["serial"], 16),
                "hosts": tuple(plain["hosts"]),
                "ips": tuple(plain["ips"]),
            }
        )


def read_books(folder: Path) -> list[Issued]:
    path = folder / "nodes.json"
    data = read_bytes(path)
    try:
        return [Issued.from_plain(i) for i in json.loads(data)["issued"]]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{path} is damaged: restore it from a copy, since without it nothing can be revoked."
        ) from None


def write_books(folder: Path, books: Sequence[Issued]) -> None:
    write_bytes(
        folder / "nodes.json",
        (json.dumps({"format": 1, "issued": [i.plain() for i in books]}, indent=2) + "\n").encode(),
    )
