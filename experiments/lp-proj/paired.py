"""What an attack costs the very same honest clients: a method under attack against itself without
liars, in points of accuracy.

The tables of `coterie attack` show the mean over honest clients, who are others at each share of
liars. This takes that part out.

    python experiments/lp-proj/paired.py runs/<folder of coterie attack>
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def scores(run: Path, split: str) -> dict[int, float] | None:
    """Score by client after the last round; None when the run collapsed."""
    status = json.loads((run / "status.json").read_text())
    if not status.get("finished") or status.get("collapsed"):
        return None
    t = pq.read_table(run / "clients.parquet").to_pandas()
    views = [v for v in ("personal", "global") if v in set(t["view"])]
    t = t[(t["round"] == t["round"].max()) & (t["split"] == split) & (t["view"] == views[0])]
    return dict(zip(t["client"], t["score"], strict=True))


def main(folder: Path) -> None:
    for split in ("test", "validation"):
        found: dict[tuple[str, str], dict[float, list[float | None]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for run in sorted((folder / "runs").glob("*/*")):
            if (
                not (m := re.fullmatch(r"(.+)-([0-9.]+)-seed(\d+)", run.name))
                or not (run / "status.json").is_file()
            ):
                continue  # a run without liars, or one that is still under way
            calm, harmed = scores(run.parent / f"unharmed-seed{m[3]}", split), scores(run, split)
            loss = (
                None
                if calm is None or harmed is None
                else 100 * float(np.nanmean([harmed[k] - calm[k] for k in harmed]))
            )
            found[run.parent.name, m[1]][float(m[2])].append(loss)
        shares = sorted({f for row in found.values() for f in row})
        print(f"\n{split} data, points against no liars, same honest clients, mean (worst seed)\n")
        print("| method | attack | " + " | ".join(f"{f:.0%} liars" for f in shares) + " |")
        print("|" + " --- |" * (2 + len(shares)))
        for (method, attack), row in sorted(found.items()):
            cells = []
            for f in shares:
                kept = [v for v in row[f] if v is not None]
                gone = (
                    f"; {len(row[f]) - len(kept)} of {len(row[f])} collapsed"
                    if len(kept) < len(row[f])
                    else ""
                )
                cells.append(
                    f"{np.mean(kept):+.2f} ({min(kept):+.2f}){gone}" if kept else "collapsed"
                )
            print(f"| {method} | {attack} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
