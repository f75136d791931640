"""What participants last said of themselves, on disk: status.json, as `coterie status` shows it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput, shown
from coterie.core.files import write_json

CERTIFICATE = "certificate.json"
COUNTS = ("round", "rounds", "up", "down")
LATEST = 1e11
"""Seconds since the epoch: the year 5138."""
NEEDED = {"name", "method", "round", "rounds", "written"}


def read_statuses(folder: Path) -> list[dict[str, Any]]:
    """The status of every plan in a folder, oldest first. Raises InvalidInput when there is none,
    or one cannot be read.
    """
    found: list[dict[str, Any]] = []
    for path in [folder / "status.json", *sorted(folder.glob("*/status.json"))]:
        try:
            one = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidInput(
                f"{str(path)!r} cannot be read: {error.strerror or error}."
            ) from None
        except ValueError:
            raise InvalidInput(f"{str(path)!r} is damaged: it is no JSON.") from None
        if isinstance(one, dict) and one.keys() & {"method", "written"}:  # runs have neither
            found.append(_sound(path, one))
    if not found:
        raise InvalidInput(
            f"{str(folder)!r} is not the folder of a hub or peer that has done a round: it holds no"
            " status."
        )
    with contextlib.suppress(OSError, ValueError):
        certificate = json.loads((folder / CERTIFICATE).read_text())
        found = [one | {"certificate": certificate} for one in found]
    return sorted(found, key=lambda one: float(one["written"]))


def _sound(path: Path, one: dict[str, Any]) -> dict[str, Any]:
    """As a participant wrote it, as far as it is shown."""
    if missing := sorted(NEEDED - one.keys()):
        raise InvalidInput(f"{str(path)!r} is damaged: it has no {missing[0]}.")
    for key in COUNTS:
        if type(one.get(key, 0)) is not int:
            raise InvalidInput(
                f"{str(path)!r} is damaged: {key} is {shown(one[key])}, but must be a whole number."
            )
    written = one["written"]
    if type(written) not in (int, float) or not 0 <= written < LATEST:
        raise InvalidInput(
            f"{str(path)!r} is damaged: written is {shown(written)}, but must be a time."
        )
    return one


def note_certificate(folder: Path, identity: Any) -> None:
    """Whose certificate a participant has, and until when; nothing where it has none."""
    if identity is not None:
        ends = {"expires": identity.expires, "ca_expires": identity.ca_expires}
        facts = {key: end.timestamp() for key, end in ends.items()}
        write_json(folder / CERTIFICATE, {"name": identity.name, **facts})


def statuses(folder: Path) -> list[dict[str, Any]]:
    """The same, or nothing."""
    with contextlib.suppress(InvalidInput):
        return read_statuses(folder)
    return []
