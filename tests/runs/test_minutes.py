"""`--minutes` holds: what does not fit is cut and named, and the same command goes on with it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Local
from coterie.channel import PLAIN
from coterie.core.compilation import Compilations, working_time
from coterie.data.blind import blind
from coterie.runs import answer as answers
from coterie.runs.answer import Wishes, answer_into
from coterie.runs.compare import Doing
from coterie.runs.experiment import Experiment
from coterie.runs.minutes import Minutes
from coterie.runs.presets import own_data, with_methods
from coterie.runs.remake import gather
from coterie.runs.tuning import batch


def test_a_piece_of_work_fits_into_what_is_left_or_into_a_tenth() -> None:
    now = [0.0]
    given = Minutes(2.0, clock=lambda: now[0], wall=lambda: 2 * now[0])
    assert given.allows(120)
    assert not given.allows(121)
    assert given.late() is None
    now[0] = 115.0
    assert (given.left, given.over) == (5, False)
    assert given.allows(12)
    assert not given.allows(13)
    now[0] = 180.0
    assert (given.left, given.over) == (0, True)
    assert "took 6.0 minutes instead of 2: compiling took 3.0" in str(given.late())
    endless = Minutes(0.0, clock=lambda: now[0], wall=lambda: now[0])
    now[0] = 1e6
    assert endless.allows(1e9)
    assert not endless.over
    assert endless.late() is None


def test_compiling_is_not_counted() -> None:
    import jax
    import jax.numpy as jnp

    begun, real = working_time(), time.monotonic()
    with Compilations() as compilations:
        jax.jit(lambda x: jnp.linalg.svd(x @ x.T + 3))(jnp.ones((7, 5)))
    taken, real = working_time() - begun, time.monotonic() - real
    assert compilations.seconds > 0
    assert 0 <= taken <= real - 0.9 * compilations.seconds


def test_a_trial_ends_in_the_round_in_which_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next evaluation, which may be far away; a tenth of the rounds is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(batch, "working_time", lambda: float(next(clock)))
    fed = blind(coterie.load("digits", clients=3, validation=0.3))
    options = {"rounds": 40, "eval_every": 20, "batch_size": 4}
    problem = batch.TuningProblem((fed,), "mlr", None, options, (1000,))
    for deadline, rounds in ((1.5, 6), (-1.0, 4)):
        made = batch.TrialBatch(problem, [Local(local_steps=1)], PLAIN, deadline=deadline)
        (tried,) = made.run()
        assert (tried.state, tried.rounds, tried.steps) == ("cut", [rounds], rounds)
        assert np.isfinite(tried.score)


def table(path: Path) -> Path:
    rng = np.random.default_rng(3)
    lines = ["site,y,a,b"]
    for i in range(160):
        a, b = rng.normal(size=2)
        lines.append(f"S{i % 4},{'no' if a + b * (i % 4 - 1) < 0 else 'yes'},{a:.4f},{b:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_what_there_was_no_time_for_is_named_and_done_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="tuning is an extra")
    given: dict[str, Any] = own_data(table(tmp_path / "rows.csv"), "site", "y")
    given["training"] = {"rounds": 4, "eval_every": 4}
    experiment = Experiment.from_config(with_methods(given, ["local", "fedavg"]))
    folder, wishes = tmp_path / "out", Wishes(minutes=0.001)
    said: list[str] = []

    def ask(minutes: float, clock: Any) -> tuple[Any, str]:
        monkeypatch.setattr(answers, "Minutes", lambda _: Minutes(minutes, clock, clock))
        found = answer_into(experiment, folder, Doing(say=said.append), wishes)
        assert gather([folder]).html() == (folder / "report.html").read_text()
        return found, str(found.answer())

    leaps = itertools.count(0, 1000)
    found, told = ask(1e-6, lambda: float(next(leaps)))
    assert [len(e.outcomes) for e in found.entries] == [1, 1]
    assert "There was no time for whole trials of 2 of 2 methods" in told
    assert "; seed 1; seed 2; what would change the answer. More --minutes give it." in told
    assert any("minutes instead of 1e-06" in sentence for sentence in said)
    found, told = ask(1.0, lambda: 0.0)
    assert [len(e.outcomes) for e in found.entries] == [3, 3]
    assert "whole trials of 2 of 2 methods" in told
    assert "seed 1;" not in told
    assert "With half the training rows everywhere" in told
