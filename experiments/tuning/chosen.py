"""What settings were chosen from: the mean score on validation data of every run of a tuning
experiment, best first.

python experiments/tuning/chosen.py runs/tuning-bytes-har experiments/tuning/bytes/har

reads the runs that `coterie compare` left in the first folder and writes runs.csv (a line per
setting and seed) and result.md (a line per setting, mean over seeds) into the second. Test data are
not looked at.
"""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import mean, pstdev

import pyarrow.parquet as pq

from coterie.core.options import as_written
from coterie.runs.experiment import Experiment


def setting_of(run: Path) -> tuple[str, str, int]:
    """A run's method, the options that are not as usual, and its seed."""
    with as_written():
        experiment = Experiment.from_file(run / "config.toml")
    method = experiment.method
    usual = type(method)().to_config()
    options = {k: v for k, v in method.to_config().items() if usual.get(k) != v}
    config = tomllib.loads((run / "config.toml").read_text())["method"]
    if "channel" in config:
        options["channel"] = config["channel"]
    return method.name, json.dumps(options, sort_keys=True), experiment.training.seed


def validated(run: Path) -> float | None:
    """The mean over clients of the score on validation data after the last round; None if the run
    collapsed.
    """
    if not json.loads((run / "status.json").read_text()).get("finished"):
        return None
    rows = pq.read_table(run / "rounds.parquet", filters=[("split", "=", "validation")]).to_pylist()
    first = rows[0]["view"]
    last = max(row["round"] for row in rows)
    return next(r["score"] for r in rows if r["round"] == last and r["view"] == first)


def main(folder: Path, out: Path) -> None:
    scores: dict[tuple[str, str], dict[int, float | None]] = defaultdict(dict)
    for config in sorted((folder / "runs").glob("*/config.toml")):
        name, options, seed = setting_of(config.parent)
        scores[name, options][seed] = validated(config.parent)
    with (out / "runs.csv").open("w", newline="") as f:
        table = csv.writer(f)
        table.writerow(("method", "options", "seed", "validation"))
        for (name, options), found in scores.items():
            for seed, score in sorted(found.items()):
                shown = "collapsed" if score is None else f"{score:.6f}"
                table.writerow((name, options, seed, shown))
    lines = ["| method | options | validation, % | seeds |", "|---|---|---|---|"]
    # By method, best first; settings of which a run collapsed come last.
    last = lambda found: None in found.values()
    level = lambda found: mean(s for s in found.values() if s is not None) if not last(found) else 0
    rank = sorted(scores.items(), key=lambda kv: (kv[0][0], last(kv[1]), -level(kv[1])))
    for (name, options), found in rank:
        values = [100 * s for s in found.values() if s is not None]
        text = f"{mean(values):.2f} ± {pstdev(values):.2f}" if len(values) > 1 else ""
        text = text or (f"{values[0]:.2f}" if values else "")
        text += " (a seed collapsed)" if None in found.values() else ""
        lines.append(f"| {name} | `{options}` | {text.strip()} | {len(found)} |")
    head = "Mean over clients on validation data after the last round, mean ± deviation over seeds."
    (out / "result.md").write_text(f"{head}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
