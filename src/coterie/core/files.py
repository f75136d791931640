"""Atomic writes: a file is either the old one or the whole new one, whenever the process dies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError

from coterie.core.errors import InvalidInput


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; renamed into place, after reaching the disk, when the
    block ends well.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        with temporary.open("r+b") as f:  # Windows brings only what is open for writing to disk
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}.") from None
    except SafetensorError as error:  # it wraps what the system says, e.g. that the disk is full
        found = re.search(r'message: "([^"]*)"', str(error))
        raise InvalidInput(f"{path} cannot be written: {found[1] if found else error}.") from None
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def writing_secret(path: Path) -> Iterator[IO[bytes]]:
    """Gives a file to fill, which nobody but its owner may read, not even for a moment; it takes
    its place, after reaching the disk, when the block ends well.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w+b") as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}.") from None


@contextlib.contextmanager
def writing_folder(path: Path, replaces: Callable[[Path], bool]) -> Iterator[Path]:
    """Gives a temporary folder beside `path`, renamed into place when the block ends well.

    A folder that is there already is replaced if `replaces` says so; any other that holds something
    is refused.
    """
    there = path.exists()
    if there and not path.is_dir():
        raise InvalidInput(f"{str(path)!r} is a file, but must be a folder.")
    if there and any(path.iterdir()) and not replaces(path):
        raise InvalidInput(
            f"the folder {str(path)!r} is not empty and holds something else; choose another."
        )
    temporary, old = (path.with_name(f".{path.name}.{end}") for end in ("part", "old"))
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        if there:
            shutil.rmtree(old, ignore_errors=True)
            path.replace(old)
        temporary.replace(path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_table(path: Path, columns: dict[str, Any]) -> None:
    with writing(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def read_arrays(path: Path, what: str) -> dict[str, Any]:
    """The arrays of an .npz file by name, or that of an .npy file under the name "".

    Nothing is unpickled; `what` names the file in the error.
    """
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            return {"": stored}
        with stored:
            return {key: stored[key] for key in stored.files}
    except Exception as error:  # zip, zlib, numpy and the file system each have their own
        raise InvalidInput(f"{what} {str(path)!r} cannot be read: {_why(error)}.") from None


@contextlib.contextmanager
def reading_tables(folder: Path, remedy: str) -> Iterator[None]:
    """Turns what damaged tables and JSON files of a folder raise into one sentence, which names the
    file that cannot be read.
    """
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        broken = [path.name for path in sorted(folder.glob("*.parquet")) if not _sound(path)]
        what = f"its {broken[0]} is cut short or damaged" if broken else _why(error)
        raise InvalidInput(
            f"the folder {str(folder)!r} cannot be read: {what}; {remedy}."
        ) from None


def _sound(path: Path) -> bool:
    try:
        pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True


def _why(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def make_folder(folder: Path, *, force: bool = False) -> None:
    """An empty folder to write to; refuses one that holds anything unless forced."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InvalidInput(f"{str(folder)!r} is a file, but must be a folder.")
        if folder.is_dir() and any(folder.iterdir()) and not force:
            raise InvalidInput(
                f"the folder {str(folder)!r} is not empty; choose another, resume it, or overwrite"
                " it with --force."
            )
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            f"the folder {str(folder)!r} cannot be written: {error.strerror or error}."
        ) from None


def own_folder(folder: Path) -> None:
    """A folder that nobody but this user may look into, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        mine = hasattr(os, "geteuid") and found.st_uid == os.geteuid()  # POSIX has users
        if mine and found.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise InvalidInput(
            f"the folder {str(folder)!r} cannot be made: {error.strerror or error}."
        ) from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time works on a folder; the lock goes with the process.

    Who holds it stands in a file beside it, and is told to whoever comes after.
    """
    import filelock

    lock = filelock.FileLock(folder / ".lock", timeout=0, thread_local=False)
    holder = folder / ".lock.holder"
    try:
        lock.acquire()
    except filelock.Timeout:
        known = holder.read_text(encoding="utf-8")[:1000] if holder.is_file() else ""
        raise InvalidInput(
            f"another process is working on the folder {str(folder)!r}{_holder(known)}."
        ) from None
    try:
        holder.write_text(json.dumps(_this_process()), encoding="utf-8")
        yield
    finally:
        lock.release()


def _this_process() -> dict[str, Any]:
    name = Path(sys.argv[0]).name
    words = ["coterie" if name == "__main__.py" else name, *sys.argv[1:]]
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    host = socket.gethostname()
    return {"pid": os.getpid(), "host": host, "since": since, "command": " ".join(words)[:200]}


def _holder(text: str) -> str:
    """What is known of the process that holds a lock, and how it is ended."""
    try:
        found = json.loads(text)
        pid, since, command = int(found["pid"]), str(found["since"]), str(found["command"])
        host = str(found["host"])
    except (ValueError, KeyError, TypeError):
        return "; wait for it or stop it"
    there = "" if host == socket.gethostname() else f" on {host}"
    return f": `{command}`, pid {pid}{there}, since {since}; wait for it, or stop it: `kill {pid}`"
