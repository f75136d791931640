"""Another metric on the command line: it decides, is shown as people know it, and is refused where
it has no meaning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from coterie.cli.deploy import status_table
from coterie.core import plugins
from coterie.core.metrics import METRICS

Cli = Callable[..., tuple[int, str, str]]
SHORT = ("-s", "training.rounds=2", "-s", "training.eval_every=2")
UNTUNED = ("--minutes", "0", "--seed", "0")


def table(kind: str) -> str:
    """Four sites; nobody at the last one is ever positive."""
    rng = np.random.default_rng(0)
    lines = ["site,a,b,answer"]
    for i in range(200):
        a, b = rng.normal(size=2)
        value = a + b + 0.3 * rng.normal()
        answer = (
            f"{10 + value:.4f}"
            if kind == "regression"
            else "no"
            if i % 4 == 3 or value < 0.5
            else "yes"
        )
        lines.append(f"S{i % 4},{a:.4f},{b:.4f},{answer}")
    return "\n".join(lines) + "\n"


def asked(cli: Cli, kind: str, *more: str) -> tuple[int, str, str]:
    Path("readings.csv").write_text(table(kind))
    own = ("--client", "site", "--target", "answer", "-m", "fedavg")
    return cli("compare", "readings.csv", *own, *SHORT, *UNTUNED, "-o", "here", *more)


def test_auc_decides_and_a_site_of_one_class_is_named(cli: Cli) -> None:
    code, out, err = asked(cli, "classification", "--metric", "auc", "--to", "0.6")
    assert code == 0, err
    words = " ".join(out.split())
    assert "test AUC in %" in words
    assert "AUC: larger is better" in words
    assert "Not in the means, for all methods alike: S3. Their AUC is not defined" in words
    assert "their test rows are all of one class" in words
    assert re.search(r"these 3 clients[^.]*\. FedAvg has the AUC \d\d", words)
    assert re.search(r"\(majority class\) *│ *50.00", out), "a constant ranks nobody"
    assert "to 60.00" in out
    report = Path("here/report.html").read_text() + Path("here/table.md").read_text()
    assert report.count("Not in the means, for all methods alike: S3") == 2
    assert report.count("exchange their predictions of a row") == 2
    config = tomllib.loads(Path("here/runs/fedavg-seed0/config.toml").read_text())
    assert config["training"]["metric"] == "auc"


def test_errors_are_shown_as_errors_and_a_gain_is_positive(cli: Cli) -> None:
    code, out, err = asked(cli, "regression", "--metric", "rmse", "--to", "0.2")
    assert code == 0, err
    words = " ".join(out.split())
    assert "RMSE: smaller is better, a gain is positive where it got smaller" in words
    cells = [[c.strip() for c in line.split("│")] for line in out.splitlines() if "│" in line]
    alone, mine = (next(c for c in cells if c[1] == name) for name in ("Local", "FedAvg"))
    assert float(alone[2]) > 0
    heads = next(line for line in out.splitlines() if "┃ method" in line).split("┃")
    gain = float(mine[[h.strip() for h in heads].index("gain over Local")].split()[0])
    assert gain == pytest.approx(float(alone[2]) - float(mine[2]), abs=0.011)
    assert "to 0.2" in words


@pytest.mark.parametrize(
    ("kind", "arguments", "sentence"),
    [
        (
            "classification",
            ("--metric", "auk"),
            r"training\.metric, 'auk' is unknown; did you mean",
        ),
        ("classification", ("--metric", "rmse"), r"is 'rmse', but that is for regression"),
        ("regression", ("--metric", "f1"), r"it must be one of: mse, rmse, mae, r2"),
        ("classification", ("--metric", "auc", "--to", "90"), r"--to is 90.*share.*e\.g\. 0\.9"),
        ("regression", ("--to", "-0.5"), r"--to is -0\.5.*mean squared error.*≥ 0, e\.g\. 0\.5"),
        ("regression", ("--metric", "r2", "--to", "1.5"), r"--to is 1\.5, but the R² must be ≤ 1"),
    ],
)
def test_what_has_no_meaning_is_refused(
    cli: Cli, kind: str, arguments: tuple[str, ...], sentence: str
) -> None:
    code, _, err = asked(cli, kind, *arguments)
    assert code == 2
    assert re.search(sentence, " ".join(err.split())), err
    assert not Path("here").exists()


MINE = '''
from coterie import register_metric


def cost(p, y):
    """Ten for a missed last class, one for anything else that is wrong."""
    wrong = p.argmax(1) != y
    return float((wrong * (1 + 9 * (y == p.shape[1] - 1))).mean())


register_metric("cost", cost, higher=False, task="classification", low=0)
'''


@pytest.fixture
def own(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "mine.py").write_text(MINE)
    known, files = dict(METRICS), dict(plugins._files)
    yield cli
    METRICS.clear()
    METRICS.update(known)
    plugins._files.clear()
    plugins._files.update(files)


def test_a_metric_of_ones_own_by_name(own: Cli) -> None:
    arguments = ("run", "experiment.toml", "-o", "here", "-s", "training.metric=cost", *SHORT)
    code, _, err = own(*arguments)
    assert code == 2
    assert "'cost' is unknown" in err
    code, out, err = own(*arguments, "--import", "mine.py")
    assert code == 0, err
    assert "cost: smaller is better" in out
    (value,) = re.findall(r"│ test +│ personal +│ +(-?[\d.]+)", out)
    assert 0 < float(value) < 10
    code, out, _ = own("show", "cost", "--import", "mine.py")
    assert "Ten for a missed last class" in " ".join(out.split())


def test_metrics_are_listed_and_explained(cli: Cli) -> None:
    code, out, _ = cli("list", "metrics")
    assert code == 0
    assert all(name in out for name in METRICS)
    code, out, _ = cli("show", "metric", "rmse")
    assert code == 0
    assert "smaller is better" in out


@pytest.mark.parametrize("whose", ["hub", "peer"])
def test_the_status_of_a_federation_shows_errors_as_errors(whose: str) -> None:
    from rich.console import Console

    scores = {"test/personal": -1.25, "test-loss/personal": 0.5}
    status = {
        "name": "ward",
        "method": "fedu",
        "metric": METRICS["rmse"].told(),
        "round": 1,
        "rounds": 2,
        "finished": False,
        "up": 0,
        "down": 0,
        "written": 0.0,
    }
    mine = {"up": 0, "down": 0, "rounds": 1, "last_seen": 0, "rejected": 0, "name": "a"}
    status |= (
        {"clients": [mine | {"scores": scores}]}
        if whose == "hub"
        else {"peer": "a", "scores": scores, "neighbours": []}
    )
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(status_table(status))
    text = " ".join(console.export_text().split())
    assert "1.250" in text
    assert "-1.250" not in text
    assert "RMSE" in text
    assert "smaller is better" in text
