"""Made-up federations of which the right answer is known.

Every world is a table with the columns site, x0 … x19 and y. Rows come from a rule y = sign(w·x +
noise) (or, for regression, w·x + noise); what differs is whose rule is whose.

python experiments/answer/worlds.py FOLDER      # writes all of them as CSV
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

FEATURES = 20


class World(NamedTuple):
    """A rule for making rows, and what a right answer may be."""

    make: Callable[[np.random.Generator], dict[str, Any]]
    right: tuple[str, ...]
    """The answers that are right."""
    truth: str


def table(
    rng: np.random.Generator,
    rules: np.ndarray,
    rows: int | np.ndarray,
    *,
    noise: float = 1.0,
    regression: bool = False,
) -> dict[str, Any]:
    """Rows of as many sites as there are rules."""
    sites = len(rules)
    site = np.repeat(np.arange(sites), np.broadcast_to(rows, sites))
    x = rng.normal(size=(len(site), FEATURES))
    value = np.einsum("ij,ij->i", x, rules[site]) + noise * rng.normal(size=len(site))
    y: Any = value.round(4) if regression else np.where(value > 0, "yes", "no")
    columns = {f"x{i}": x[:, i].round(4) for i in range(FEATURES)}
    return {"site": [f"s{k:02d}" for k in site], **columns, "y": y}


def rule(rng: np.random.Generator, count: int = 1) -> np.ndarray:
    drawn = rng.normal(size=(count, FEATURES))
    return 2 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def one_rule(rng: np.random.Generator, rows: Any = 40, **more: Any) -> dict[str, Any]:
    return table(rng, np.repeat(rule(rng), 12, 0), rows, **more)


def unrelated(rng: np.random.Generator, rows: Any = 120, **more: Any) -> dict[str, Any]:
    return table(rng, rule(rng, 12), rows, **more)


def two_clusters(rng: np.random.Generator) -> dict[str, Any]:
    one = rule(rng)
    return table(rng, np.concatenate([np.repeat(one, 6, 0), np.repeat(-one, 6, 0)]), 60)


def poisoned(rng: np.random.Generator) -> dict[str, Any]:
    """One rule, but the first site, the largest, has all its labels the wrong way round."""
    one = np.repeat(rule(rng), 12, 0)
    one[0] *= -1
    return table(rng, one, np.array([240] + [40] * 11))


def tiny_site(rng: np.random.Generator) -> dict[str, Any]:
    """Unrelated rules at seven sites, and an eighth with four rows, of which one is for testing."""
    return table(rng, rule(rng, 8), np.array([150] * 7 + [4]))


def many_rows(rng: np.random.Generator) -> dict[str, Any]:
    return table(rng, np.repeat(rule(rng), 10, 0), 100_000)


def pure_noise(rng: np.random.Generator, sites: int) -> dict[str, Any]:
    """Labels by a coin: nothing can be learnt."""
    found = table(rng, np.zeros((sites, FEATURES)), 60)
    return found


HELPS, SAME = ("federate",), ("do not federate", "no clear difference")
WORLDS: dict[str, World] = {
    "one-rule": World(one_rule, HELPS, "one rule, 40 rows a site: helps"),
    "unrelated": World(unrelated, SAME, "a rule of its own at every site: does not help"),
    "two-clusters": World(
        two_clusters, (*HELPS, *SAME), "two hidden clusters of opposite rules: must not hurt"
    ),
    "poisoned": World(
        poisoned, (*HELPS, *SAME), "one rule, the largest site's labels are flipped: named"
    ),
    "tiny-site": World(tiny_site, SAME, "unrelated rules, one site with one test row"),
    "many-rows": World(
        many_rows, (*HELPS, *SAME), "one rule, 100,000 rows a site: hardly anything to gain"
    ),
    "regression-one-rule": World(
        lambda rng: one_rule(rng, 30, regression=True), HELPS, "one rule, a number to predict"
    ),
    "regression-unrelated": World(
        lambda rng: unrelated(rng, 120, regression=True), SAME, "rules of their own, a number"
    ),
}


def write(world: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    csv.write_csv(pa.table(world), path)


if __name__ == "__main__":
    for name, world in WORLDS.items():
        write(world.make(np.random.default_rng(0)), Path(sys.argv[1]) / f"{name}.csv")
