"""Fetching published files: resumed where a connection broke, checked, and tried a second time
before giving up.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.core.errors import CoterieError

CHUNK = 1 << 14
TIMEOUT = (10.0, 60.0)
"""Seconds to wait for a connection, and for the next bytes."""


class DownloadFailed(CoterieError):
    """A file could not be fetched; the message says why, in half a sentence."""


class Corrupt(Exception):
    """What arrived is complete but not what was published."""


@contextmanager
def _bar(title: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, nothing elsewhere (logs and tests stay clean)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task(title, total=total or None, completed=done)
        yield lambda n: progress.update(task, advance=n)


class Resuming:
    """A downloader for pooch that goes on where an earlier try stopped.

    Bytes collect in `part`, which survives a broken connection (and a killed process); only a
    complete one is handed to pooch, which checks it and moves it into place. A server without
    ranges answers with the whole file, and we start again.
    """

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests  # type: ignore[import-untyped]

        have = self.part.stat().st_size if self.part.exists() else 0
        # Without "identity" a server may compress on the way, and ranges and lengths would count
        # other bytes than ours.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if (
                answer.status_code == 416
                and answer.headers.get("Content-Range", "") == f"bytes */{have}"
            ):
                self.part.replace(output_file)  # everything had arrived, only the move was missing
                return
            if answer.status_code == 416:
                self.part.unlink()
                raise Corrupt("the server does not know the part that was already here")
            answer.raise_for_status()
            if answer.status_code != 206 or not answer.headers.get("Content-Range", "").startswith(
                f"bytes {have}-"
            ):
                have = 0
            length = int(answer.headers.get("Content-Length", 0))
            with (
                self.part.open("ab" if have else "wb") as out,
                _bar(self.part.stem, have + length, have) as advance,
            ):
                for chunk in answer.iter_content(CHUNK):
                    out.write(chunk)
                    advance(len(chunk))
        size = self.part.stat().st_size
        if length and size != have + length:
            raise requests.ConnectionError(f"{size} of {have + length} bytes arrived")
        self.part.replace(output_file)


def _why(error: BaseException) -> str:
    """Half a sentence out of an exception of the network stack, whose own text runs over lines and
    names objects.
    """
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    if isinstance(
        error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
    ):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        text = str(error)
        return text if text.endswith("bytes arrived") else "there is no connection"
    if isinstance(error, ValueError) and "hash" in str(error).lower():
        return "its checksum is wrong"
    return str(error) or type(error).__name__


def fetch(
    urls: tuple[str, ...],
    file: str,
    folder: Path,
    known_hash: str | None,
    unpack: Callable[[Path], None] | None = None,
) -> Path:
    """Download `file` into `folder` from the first of `urls`; if that fails, once more (from the
    next one, if there is one).

    A file with a wrong checksum, or one that `unpack` finds Corrupt, is deleted before the second
    try and after it.
    """
    import pooch  # type: ignore[import-untyped]
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    part, target = folder / f"{file}.part", folder / file
    reason = ""
    for url in (urls[0], urls[min(1, len(urls) - 1)]):
        try:
            pooch.retrieve(
                url, known_hash=known_hash, fname=file, path=folder, downloader=Resuming(part)
            )
            if unpack is not None:
                unpack(target)
            return target
        except requests.RequestException as error:
            reason = _why(error)  # the part stays: the next try goes on from there
        except (ValueError, Corrupt) as error:
            reason = _why(error)
            part.unlink(missing_ok=True)
            target.unlink(missing_ok=True)
        except OSError as error:
            raise DownloadFailed(
                f"{target} cannot be written ({error.strerror or error})"
            ) from None
    raise DownloadFailed(f"{file} could not be downloaded from {url}: {reason}")
