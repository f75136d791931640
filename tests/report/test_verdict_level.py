"""The verdict that a user reads, on simulated comparisons: how often is it wrong, and how often
does it find what is there?

A world gives every client a true gain, every training run a random effect on all clients, and every
test row an outcome that Local and the method share but for some rows. Three worlds have nothing to
find:

- "same": nobody gains; tests the first question and the single clients.
- "by turns": some of these very clients gain and some lose, 0 on average; tests the first question.
- "drawn": the clients' gains are drawn with mean 0; tests the second question.

With one seed the effect of the training run is part of what the answer is about, and the answer
says so; it is then not simulated.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import coterie
from coterie import Federation
from coterie.core.metrics import ACCURACY, MSE
from coterie.data.federation import Split
from coterie.engine.row_scores import RowScores
from coterie.report.comparison import Comparison, Entry
from coterie.report.outcome import Outcome

CLIENTS, SEEDS, EFFECTS, ROWS = (2, 3, 5, 10, 30, 100), (1, 2, 3, 5, 10), (0.0, 0.5), (6, 40)
LOCAL, METHOD = coterie.Local(), coterie.FedU()
SPREAD = 0.08
"""Standard deviation of the clients' true gains."""
DISAGREE = 0.4
"""Share of rows on which Local and the method may differ."""


@dataclasses.dataclass(frozen=True)
class World:
    clients: int
    seeds: int
    effect: float
    rows: int
    kind: str
    gain: float = 0.0
    regression: bool = False
    resplit: bool = False


def worlds(kind: str, gain: float = 0.0) -> list[World]:
    return [
        World(k, s, e, n, kind, gain)
        for k, s, e, n in itertools.product(CLIENTS, SEEDS, EFFECTS, ROWS)
        if s > 1 or e == 0
    ]


def federation(clients: int, rows: int) -> Federation:
    part = lambda n: Split(
        np.zeros((clients * n, 1)), np.zeros(clients * n, int), n * np.arange(clients + 1)
    )
    return Federation("world", part(1), part(1), part(rows), classes=2)


def comparison(world: World, rng: np.random.Generator, fed: Federation) -> Comparison:
    k, n = world.clients, world.rows
    own = rng.normal(0, SPREAD, k) if world.kind != "same" else np.zeros(k)
    own = own - own.mean() if world.kind == "by turns" else own
    client = np.repeat(np.arange(k), n)
    runs = rng.normal(0, world.effect * SPREAD, world.seeds)
    fresh = lambda: (rng.random(k * n), rng.random(k * n), rng.standard_t(5, k * n))
    shared = fresh()
    outcomes: dict[str, list[Outcome]] = {"local": [], "method": []}
    for s, run in enumerate(runs):
        differ, side, noise = fresh() if world.resplit else shared
        anew = rng.random(k * n) < 0.2  # training again changes the outcome of some rows
        side = np.where(anew, rng.random(k * n), side)
        gain = own[client] + run + world.gain
        if world.regression:
            alone = -1 - 0.5 * noise
            mine = alone + gain + 0.5 * rng.standard_t(5, k * n) * anew + 0.6 * (side - 0.5)
        else:
            wins = side < (1 + np.clip(gain / DISAGREE, -1, 1)) / 2
            alone = np.where(differ < DISAGREE, ~wins, differ < 0.8).astype(float)
            mine = np.where(differ < DISAGREE, wins, differ < 0.8).astype(float)
        made = (("local", LOCAL, alone), ("method", METHOD, mine))
        for name, method, scores in made:
            view = method.model_views[0]
            each = scores.reshape(k, n).mean(1)
            outcomes[name].append(
                Outcome(
                    method,
                    s,
                    *(np.array([1]) for _ in range(4)),
                    {view: each[None]},
                    {view: -each[None]},
                    np.full(k, n),
                    1.0,
                    1.0,
                    validation=0.5,
                    rows=RowScores(client, np.arange(k * n) % n, {view: scores}),
                    test_rows=str(s) if world.resplit else "the same",
                )
            )
    local, method_ = outcomes["local"], outcomes["method"]
    entries = [Entry("Local", local, local), Entry("FedU", method_, local)]
    return Comparison("world", fed, entries, MSE if world.regression else ACCURACY)


def read(text: str) -> dict[str, str]:
    """What the answer says, as a user would read it."""
    these = re.match(r"Federating (helps|hurts|makes no clear difference to) these", text)
    other = re.search(
        r"nother client like these would (gain too|lose|gain is not clear|gain cannot be)", text
    )
    found = re.search(r"helped: (\d+) of \d+ clients.*clearly hurt: (\d+)", text)
    assert these, text
    assert other, text
    assert found, text
    return {
        "these": these[1],
        "others": other[1],
        "named": "somebody" if int(found[1]) + int(found[2]) else "nobody",
    }


def said(
    world: World, count: int, rng: np.random.Generator, check: bool = True
) -> dict[str, Counter[str]]:
    fed = federation(world.clients, world.rows)
    out: dict[str, Counter[str]] = {"these": Counter(), "others": Counter(), "named": Counter()}
    for _ in range(count):
        compared = comparison(world, rng, fed)
        text = compared.answer()
        for told in (text, " ".join(compared.verdict())) if check else ():
            assert (world.seeds == 1) == ("one training run" in told), told
        for question, word in read(text).items():
            out[question][word] += 1
    return out


WRONG = {"same": "these", "by turns": "these", "drawn": "others"}
CLAIMS = {"helps", "hurts", "gain too", "lose", "somebody"}


def claims(counter: Counter[str]) -> int:
    return sum(counter[word] for word in CLAIMS)


@pytest.mark.parametrize("kind", ["same", "by turns", "drawn"])
def test_chance_is_called_a_difference_in_at_most_6_percent(kind: str) -> None:
    """Over the whole grid together. In most worlds the tests are on the safe side, so the mean is
    1% to 4%; the percentile bootstrap of old had 12% to 45%. For single worlds see below.
    """
    rng = np.random.default_rng(1)
    wrong, named, total = 0, 0, 0
    for world in worlds(kind):
        if kind == "drawn" and world.clients < 6:
            continue
        count = 4
        found = said(world, count, rng)
        wrong, total = wrong + claims(found[WRONG[kind]]), total + count
        named += claims(found["named"])
    assert total >= 200
    assert wrong / total <= 0.06
    assert kind != "same" or named / total <= 0.06


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_few_clients_give_no_answer_about_others(clients: int) -> None:
    found = said(World(clients, 1, 0.0, 40, "same", gain=0.3), 5, np.random.default_rng(0))
    assert found["others"] == {"gain cannot be": 5}


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize(("seeds", "effect"), [(1, 0.0), (3, 0.0), (5, 0.0), (10, 0.5)])
def test_what_is_there_is_found(clients: int, seeds: int, effect: float) -> None:
    """A gain of 25 points, three times the spread of the clients, on 60 rows a client."""
    world = World(clients, seeds, effect, 60, "drawn", gain=0.25)
    found = said(world, 10, np.random.default_rng(3))
    assert found["these"]["helps"] >= 8
    assert clients < 10 or found["others"]["gain too"] >= 9
    assert found["named"]["somebody"] >= 8


def test_two_seeds_that_agree_are_enough() -> None:
    world = World(10, 2, 0.0, 100, "same", gain=0.35)
    found = said(world, 10, np.random.default_rng(3))
    assert found["these"]["helps"] >= 8


@pytest.mark.parametrize("resplit", [False, True])
def test_errors_of_regression_are_tested_too(resplit: bool) -> None:
    world = World(5, 3, 0.0, 40, "same", gain=0.5, regression=True, resplit=resplit)
    found = said(world, 10, np.random.default_rng(3))
    assert found["these"]["helps"] >= 8
    assert found["named"]["somebody"] >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        World(2, 1, 0.0, 40, "same"),
        World(2, 2, 0.5, 40, "by turns", resplit=True),
        World(3, 3, 0.5, 6, "same", regression=True),
        World(5, 1, 0.0, 6, "by turns"),
        World(5, 5, 0.5, 40, "by turns", regression=True),
        World(10, 2, 0.5, 40, "same"),
        World(30, 3, 0.5, 6, "by turns", regression=True, resplit=True),
        World(6, 1, 0.0, 40, "drawn"),
        World(10, 2, 0.5, 40, "drawn", regression=True),
        World(10, 5, 0.5, 6, "drawn"),
        World(30, 3, 0.5, 6, "drawn"),
        World(100, 10, 0.5, 6, "drawn"),
    ],
    ids=str,
)
def test_no_world_by_itself_is_misjudged(world: World) -> None:
    """5,000 comparisons each: a test whose level is 5% stays below 6% with 99.9% probability."""
    count = 5000
    assert stats.binom.isf(0.001, count, 0.05) <= 0.06 * count
    found = said(world, count, np.random.default_rng(4), check=False)
    assert claims(found[WRONG[world.kind]]) <= 0.06 * count
    assert world.kind != "same" or claims(found["named"]) <= 0.06 * count
