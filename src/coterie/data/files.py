"""Where published files lie: a folder the user names, COTERIE_DATA, the user cache; otherwise they
are downloaded into the cache.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coterie.core.errors import InvalidInput
from coterie.core.places import cache_root
from coterie.data.download import Corrupt, DownloadFailed, fetch

BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, tarfile.TarError)
"""What Python raises on compressed files that are cut short or damaged."""


@dataclasses.dataclass(frozen=True)
class Download:
    """One file on a server.

    An archive names the members to take out of it, each with its SHA-256 where that is known.
    """

    urls: tuple[str, ...]
    file: str
    hash: str | None = None
    """`sha256:…`, or `md5:…` where the publisher gives only that; None if only the members can be
    checked.
    """
    members: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """For an archive: path under the data set's folder (its end is looked for in the archive) →
    SHA-256 of the content.
    """


@dataclasses.dataclass(frozen=True)
class Published:
    """A data set as its authors publish it."""

    title: str
    files: tuple[str, ...]
    """What must be there, without a `.gz` that may follow."""
    folders: tuple[str, ...]
    """Where below a data folder the files may lie; downloads go into the first."""
    home: str
    """The page where people find it."""
    downloads: tuple[Download, ...] = ()


def roots(data_dir: str | None) -> list[Path]:
    """The folders that are searched, in this order."""
    found = []
    if data_dir:
        explicit = Path(data_dir).expanduser()
        if not explicit.is_dir():
            raise InvalidInput(f"data_dir is {data_dir!r}, but there is no such folder.")
        found.append(explicit)
    if os.environ.get("COTERIE_DATA"):
        found.append(Path(os.environ["COTERIE_DATA"]).expanduser())
    return [*found, cache_root()]


def either(path: Path) -> Path | None:
    """The file, or the file with `.gz` behind its name, or None."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


def search(
    published: Published,
    data_dir: str | None,
    names: Iterable[str] | None = None,
    *,
    partial: bool = False,
) -> dict[str, Path]:
    """The first folder that holds all of the files (with `partial`: any of them), as name → path;
    empty if there is none.
    """
    wanted = tuple(names or published.files)
    for root in roots(data_dir):
        # A folder named by hand may be the data set's own folder; shared roots hold many sets, some
        # with the same file names.
        own = ("",) if data_dir and root == Path(data_dir).expanduser() else ()
        for folder in (*published.folders, *own):
            found = {name: path for name in wanted if (path := either(root / folder / name))}
            if len(found) == len(wanted) or (partial and found):
                return found
    return {}


def locate(
    published: Published, data_dir: str | None = None, *, download: bool = True
) -> dict[str, Path]:
    """Paths of all files of a data set, downloaded first if they are nowhere; one sentence if that
    cannot be.
    """
    found = search(published, data_dir)
    if found:
        return found
    why = (
        "downloading is switched off"
        if published.downloads
        else "they cannot be downloaded automatically"
    )
    if download and published.downloads:
        folder = cache_root() / published.folders[0]
        try:
            for item in published.downloads:
                _fetch(item, folder)
            return search(published, data_dir)
        except DownloadFailed as error:
            why = str(error)
    raise missing(published, data_dir, why)


def missing(
    published: Published, data_dir: str | None, why: str, names: Iterable[str] | None = None
) -> InvalidInput:
    """The sentence for absent files: which, where to put them, where they are published."""
    root = Path(data_dir) if data_dir else Path(os.environ.get("COTERIE_DATA") or cache_root())
    files = ", ".join(names or published.files)
    return InvalidInput(
        f"{published.title} is not on this machine ({why}): put {files} (plain or .gz) into"
        f" {root / published.folders[0]}, or name their folder with data_dir or COTERIE_DATA; they"
        f" are published at {published.home} ."
    )


def _fetch(item: Download, folder: Path) -> None:
    if not item.members:
        if either(folder / item.file) is None:
            fetch(item.urls, item.file, folder, item.hash)
        return
    archive = fetch(
        item.urls, item.file, folder, item.hash, lambda path: _unpack(path, item.members, folder)
    )
    archive.unlink()


def _unpack(archive: Path, members: Mapping[str, str | None], folder: Path) -> None:
    """Take the named members out of a zip or tar archive, checked; nothing else of it is written
    anywhere.
    """
    try:
        with archive.open("rb") as source:
            for name, data in _members(source, members):
                expected = members[name]
                if expected and hashlib.sha256(data).hexdigest() != expected:
                    raise Corrupt(f"{name} in the archive has a wrong checksum")
                with atomic(folder / name) as out:
                    out.write(data)
    except (*BROKEN, KeyError) as error:
        raise Corrupt(f"the archive is damaged: {error}") from None


def _members(source: IO[bytes], members: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """(wanted name, content), one after the other: some archives are large."""
    wanted = list(members)
    if not zipfile.is_zipfile(source):
        source.seek(0)
        with tarfile.open(fileobj=source) as tar:
            names = [m.name for m in tar.getmembers() if m.isfile()]
            for name in wanted:
                member = tar.extractfile(_pick(names, name))
                if member is not None:
                    yield name, member.read()
        return
    with zipfile.ZipFile(source) as zipped:
        names = zipped.namelist()
        inner = [n for n in names if n.endswith(".zip")]
        if inner and not any(n.endswith(wanted[0]) for n in names):
            yield from _members(
                io.BytesIO(zipped.read(inner[0])), wanted
            )  # UCI wraps the authors' zip into one of its own
            return
        for name in wanted:
            yield name, zipped.read(_pick(names, name))


def _pick(names: list[str], wanted: str) -> str:
    """The archive's member that ends like the wanted path (archives differ in their top folder)."""
    hits = [n for n in names if n == wanted or n.endswith("/" + wanted)]
    if not hits:
        raise KeyError(f"{wanted} is not in it")
    return min(hits, key=len)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Write under another name and rename at the end, so that a killed process leaves no half file
    behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_bytes(path: Path) -> bytes:
    """The content of a plain or gzip file (told by its first bytes, not its name)."""
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            return file.read()
    except BROKEN as error:
        raise corrupt(path, str(error)) from None


def corrupt(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} is corrupt or cut short ({why}); delete it and get it again.")
