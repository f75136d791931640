"""Values that tuning found, beside the results: what was tuned once need not be tuned again.

OUT/tuned has two files for a tuning, named after its experiment: NAME.json has every method as it
was given and as it was chosen, NAME.csv all trials. If anything of the experiment changes (data,
rounds, budget, what is searched), so does the name, and it is tuned anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import make_folder, write_text
from coterie.report.trials import trials_csv
from coterie.runs.contender import Contender
from coterie.runs.reproduce.plan import Found, PlannedStudy, key_of
from coterie.runs.tuning.found import Tuned

FOLDER = "tuned"


class Values(NamedTuple):
    """What a tuning found, and the seconds of processors that it took."""

    found: Found
    core_seconds: float | None
    """None: it was made when they were not counted."""


def values_of(tuned: Sequence[Tuned]) -> Values:
    found = {key_of(t.given): t.contender for t in tuned}
    return Values(found, sum(t.core_seconds for t in tuned))


def record(folder: Path, study: PlannedStudy, tuned: Sequence[Tuned]) -> None:
    config: dict[str, Any] = study.experiment.to_config()
    config.pop("methods", None)
    text = {
        "experiment": config,
        "core_seconds": round(sum(t.core_seconds for t in tuned), 1),
        "methods": [
            {
                "given": t.given.to_config(),
                "chosen": t.contender.to_config(),
                "score": t.score,
                "trials": len(t.trials),
                "steps": t.steps,
            }
            for t in tuned
        ],
    }
    make_folder(folder, force=True)
    write_text(folder / f"{study.folder.name}.csv", trials_csv([t.table() for t in tuned]))
    write_text(folder / f"{study.folder.name}.json", json.dumps(text, indent=1) + "\n")


def recorded(folder: Path, study: PlannedStudy) -> Values | None:
    """What an earlier tuning found; nothing if there was none."""
    path = folder / f"{study.folder.name}.json"
    if not path.is_file():
        return None
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(m["given"], m["chosen"]) for m in text["methods"]]
        found = {key_of(given): Contender.from_config(chosen) for given, chosen in pairs}
        taken = text.get("core_seconds")
        return Values(found, None if taken is None else float(taken))
    except (ValueError, KeyError, TypeError, CoterieError) as error:
        raise InvalidInput(
            f"{path} does not have the values of a tuning ({error}); delete it, or give"
            " --tune-again."
        ) from None
