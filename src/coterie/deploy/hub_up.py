"""Bringing a hub up: at the port that its kit says, and with nothing left behind where it fails."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.core.files import locked
from coterie.deploy import kit

PORT = 9092
Say = Callable[[str], None]


def up(
    keys: Path,
    folder: Path,
    host: str,
    port: int | None,
    *,
    say: Say = print,
    metrics: int | None = None,
) -> None:
    """Until Ctrl-C or SIGTERM. Without a port it is the kit's, or else 9092."""
    from coterie.deploy.zenoh import gate

    chosen = port_of(keys, port, say)
    with nothing_left(folder):
        gate.up(keys, folder, host, chosen, say=say, metrics=metrics)


def port_of(keys: Path, port: int | None, say: Say) -> int:
    """Where to listen: clients call the port that is in their kits."""
    if not kit.is_kit(keys) or not (hub := kit.read(keys).hub):
        return PORT if port is None else port
    called = int(hub.rpartition(":")[2])
    if port is None or port == called:
        return called
    say(
        f"it listens on port {port}, but by their kits clients call {hub}: that is right only if"
        " something passes them on from there."
    )
    return port


@contextlib.contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """A hub that does not come up takes away what it has made: its keys, and a new folder."""
    folders = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    parts = [part for part in (folder / "kit", folder / "locks") if not part.exists()]
    before = _stamp(folder)
    try:
        yield
    except BaseException:
        if _stamp(folder) == before:  # else it was up, and others may work there
            _take_away(folder, parts)
            for path in folders:
                with contextlib.suppress(OSError):  # it holds something else
                    path.rmdir()
        raise


def _stamp(folder: Path) -> tuple[int, ...]:
    """Of what a hub writes when it is up."""
    try:
        facts = (folder / "hub.json").stat()
    except OSError:
        return ()
    return facts.st_mtime_ns, facts.st_ino


def _take_away(folder: Path, parts: list[Path]) -> None:
    gate = folder / "locks" / "gate"
    if not gate.is_dir():
        return
    with contextlib.suppress(InvalidInput), locked(gate):  # another hub may have come up there
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)
