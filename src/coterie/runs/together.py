"""A run by several processes (`core/crew.py`): the first writes the run's folder, the others a
folder of their own, which goes when they end.

So every process does the same, and none of the code of a run knows that there are others.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coterie.core import crew
from coterie.core.errors import InvalidInput


@contextlib.contextmanager
def own_folder(folder: Path, *, resumed: bool) -> Iterator[Path]:
    """The folder that this process writes: the run's, or a copy of it (`resumed`) or an empty one
    elsewhere. All processes must see the run's folder to resume it.
    """
    if crew.count() == 1:
        yield folder
        return
    with contextlib.ExitStack() as stack:
        place = folder
        if not crew.leads():
            place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / folder.name
            if resumed:
                _copy(folder, place)
        crew.agreed(0)  # nobody goes on before all have copied
        yield place


def _copy(folder: Path, place: Path) -> None:
    if not (folder / "config.toml").is_file():
        raise InvalidInput(
            f"process {crew.index()} does not see the folder {str(folder)!r}; all processes must,"
            " e.g. on a shared file system."
        )
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns("store.scratch", ".lock"))
