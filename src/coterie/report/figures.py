"""How figures look on paper, and SVG text for pages."""

from __future__ import annotations

import io
from typing import Any

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#8000E0", "#602000", "#E00040"),
)
"""Those of Okabe and Ito, and three more that colour-blind people can tell from them, too
(tests/report/test_colours.py).
"""
DASHES = ("-", "--", ":", "-.")
MARKS = "osD^vPX<>*"


def look(i: int) -> dict[str, Any]:
    """Colour, dash and mark of the i-th line, which survive a grey printer."""
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[turn % len(DASHES)],
        "marker": MARKS[i % len(MARKS)],
    }


def svg(figure: Any) -> str:
    import matplotlib.pyplot as plt

    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "svg.hashsalt": "coterie",
            "pdf.fonttype": 42,  # letters stay letters: publishers ask for it
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
        }
    )
    return plt
