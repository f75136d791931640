"""Write docs/methods.md from the methods' own docstrings and options; a test checks that the page is up to date."""

from __future__ import annotations

import inspect
from pathlib import Path

from coterie.algorithms import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"
HEAD = """# Methods

Made by `python tools/methods_page.py` from the code; `coterie show NAME` prints the same. Floats are traced (another value compiles nothing
new); where it says so, a schedule over the rounds may be given.
"""


def render() -> str:
    parts = [HEAD]
    for name, cls in METHODS.items():
        parts.append(f"## {cls.title} (`{name}`)\n\n{cls.paper}\n\n```text\n{inspect.cleandoc(cls.__doc__ or '')}\n```\n")
        rows = ["| option | symbol | default | allowed | meaning |", "|---|---|---|---|---|"]
        for d in cls.public().values():
            allowed = d.allowed + (", or a schedule" if d.schedulable else "")
            default = "–" if d.default is None else d.default
            rows.append(f"| `{d.name}` | {d.symbol} | {default} | {allowed} | {d.help} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE.name, "written")
