"""What participants last said of themselves, on disk: status.json, as `coterie status` shows it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.files import write_json

CERTIFICATE = "certificate.json"
NEEDED = {"name", "method", "round", "rounds", "written"}


def read_statuses(folder: Path) -> list[dict[str, Any]]:
    """The status of every plan in a folder, oldest first. Raises InvalidInput when there is none,
    or one cannot be read.
    """
    found = []
    for path in [folder / "status.json", *sorted(folder.glob("*/status.json"))]:
        try:
            found.append(json.loads(path.read_text()))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidInput(
                f"{str(path)!r} cannot be read: {error.strerror or error}."
            ) from None
        except ValueError:
            raise InvalidInput(f"{str(path)!r} is damaged.") from None
    found = [one for one in found if isinstance(one, dict) and set(one) >= NEEDED]
    if not found:
        raise InvalidInput(
            f"{str(folder)!r} is not the folder of a hub or peer that has done a round: it holds no"
            " status."
        )
    with contextlib.suppress(OSError, ValueError):
        certificate = json.loads((folder / CERTIFICATE).read_text())
        found = [one | {"certificate": certificate} for one in found]
    return sorted(found, key=lambda one: float(one["written"]))


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
