"""A hook of MkDocs: pages link to files of the repository outside docs/, which the site lacks.

Such a link becomes the file's path. A link to a file that does not exist stays as it is, so that
`mkdocs build --strict` stops at it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    folder = (ROOT / "docs" / page.file.src_uri).parent
    return OUTSIDE.sub(lambda link: _in_words(link, folder), markdown)


def _in_words(link: re.Match[str], folder: Path) -> str:
    target = (folder / link[2]).resolve()
    if (
        not target.exists()
        or not target.is_relative_to(ROOT)
        or target.is_relative_to(ROOT / "docs")
    ):
        return link[0]
    path = f"`{target.relative_to(ROOT)}`"
    text = link[1].strip("`")
    return path if text == path.strip("`") else f"{link[1]} ({path} in the repository)"
