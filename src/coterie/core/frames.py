"""What notebooks show and data frames hold."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.core.errors import InvalidInput

if TYPE_CHECKING:
    import pandas


def frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """Columns as a pandas DataFrame, or one sentence that says how to get pandas."""
    try:
        import pandas
    except ImportError:
        raise InvalidInput(
            "pandas is not installed, but to_pandas needs it: pip install 'coterie[pandas]'."
        ) from None
    return pandas.DataFrame(dict(columns))


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A small table for notebooks; without a header, the first cell of a row names it.

    >>> html_table("a < b", [], [["N", "3"]])
    '<table><caption>a &lt; b</caption><tr><th>N</th><td>3</td></tr></table>'
    """
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>"
        + "".join(
            f"<th>{html.escape(cell)}</th>"
            if i == 0 and not header
            else f"<td>{html.escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    top = f"<tr>{head}</tr>" if header else ""
    return f"<table><caption>{html.escape(title)}</caption>{top}{body}</table>"
