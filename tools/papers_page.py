"""Write docs/papers.md, with the figures of what `coterie reproduce` found, from experiments/; a
test checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path

from coterie.runs.reproduce.base import PaperTable, all_tables
from coterie.runs.reproduce.rows import Row, read_csv

ROOT = Path(__file__).parents[1]
DOCS, FOUND = ROOT / "docs", ROOT / "experiments"
PAPERS = {"fedu": "FedU", "pfedme": "pFedMe", "lp-proj": "lp-proj"}
THEORY = {
    "fedu": [("theorem-1", "figure", "Theorem 1: the error over T, S and R")],
    "pfedme": [("corollary-1", "figure", "Corollary 1: the error over N, R and T")],
    "lp-proj": [
        ("theory", "figure-1", "Figure 1: the loss of honest clients over λ, under three attacks"),
        ("rates", "figure", "Theorems 14 and 15: errors over T and β"),
    ],
}
"""Experiments on theorems that have a figure: folder, file, title."""
HEAD = """# What came out

Made by `python tools/papers_page.py` from `experiments/`. Open circles and grey lines are the
papers' numbers, filled ones are ours. "Honest" and "paper" are the two protocols of
[the papers' tables](reproduce.md#two-protocols). Every number and its verdict is in
[experiments](../experiments/README.md); what it means is in the FINDINGS of each paper.
"""


def results() -> list[tuple[PaperTable, list[Row]]]:
    found = []
    for table in all_tables("both"):
        path = FOUND / table.paper / table.folder / "result.csv"
        if path.is_file():
            found.append((table, read_csv(path.read_text(encoding="utf-8"))))
    return found


def page() -> tuple[str, dict[str, str]]:
    """The page, and its figures by name."""
    lines, figures = [HEAD], {}
    for paper, title in PAPERS.items():
        mine = [(t, rows) for t, rows in results() if t.paper == paper]
        if mine:
            lines.append(
                f"## {title}\n\nWhat holds: [FINDINGS](../experiments/{paper}/FINDINGS.md).\n"
            )
        for table, rows in mine:
            name = f"{paper}-{table.folder}.svg"
            folder = FOUND / paper / table.folder
            figures[name] = (folder / "figure.svg").read_text(encoding="utf-8")
            compared = [row for row in rows if row.paper]
            near = sum(row.verdict.startswith(("within", "none")) for row in compared)
            told = f" {near} of {len(compared)} numbers agree." if compared else ""
            lines.append(
                f"### {table.title} ({table.protocol})\n\n"
                f"`coterie reproduce {table.key}"
                f"{' --protocol paper' if table.protocol == 'paper' else ''}`.{told}"
                f" [All numbers](../experiments/{paper}/{table.folder}/result.md).\n\n"
                f"![{table.title}](images/papers/{name})\n"
            )
        for place, file, heading in THEORY[paper]:
            name = f"{paper}-{place}.svg"
            figures[name] = (FOUND / paper / place / f"{file}.svg").read_text(encoding="utf-8")
            lines.append(
                f"### {heading}\n\n"
                f"`python experiments/{paper}/{place}/experiment.py`."
                f" [All numbers](../experiments/{paper}/{place}/result.md).\n\n"
                f"![{heading}](images/papers/{name})\n"
            )
    return "\n".join(lines), figures


if __name__ == "__main__":
    text, figures = page()
    (DOCS / "papers.md").write_text(text, encoding="utf-8")
    place = DOCS / "images/papers"
    place.mkdir(exist_ok=True)
    for name, figure in figures.items():
        (place / name).write_text(figure, encoding="utf-8")
    print(f"papers.md written, with {len(figures)} figures")
