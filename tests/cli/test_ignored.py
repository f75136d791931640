"""Nothing that somebody asks for is passed over in silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]
RUN = ("run", "experiment.toml", "-o", "never")
OWN = ("--client", "site", "--target", "answer")

IGNORED = {
    "seeds": ((*RUN, "-s", "seeds=[1]"), r"seeds is \[1\], but `coterie run`.*training\.seed"),
    "resplit": ((*RUN, "-s", "resplit=true"), r"resplit is true, but `coterie run`"),
    "batch size of full batches": (
        (*RUN, "-s", 'training.sampling="full"'),
        r'training\.batch_size is 8, but training\.sampling is "full"',
    ),
    "share beside k": (
        (*RUN, "-s", 'channel={name="top-k", share=0.01, k=3}'),
        r"top-k\.share is 0\.01, but top-k\.k is 3",
    ),
    "steps beside epochs": (
        (*RUN, "-s", "method.local_epochs=1"),
        r"fedu\.local_steps is 2, but fedu\.local_epochs is 1",
    ),
    "blocks of a dense matrix": (
        (*RUN, "-s", 'method={name="lp-proj-2", blocks=2, dsub=4}'),
        r'lp-proj-2\.blocks is 2, but lp-proj-2\.projection is "dense"',
    ),
    "client beside a named data set": (
        ("compare", "-d", "digits", "-m", "fedu", "--client", "site"),
        r"--client is 'site', but",
    ),
    "target beside a named data set": (
        ("compare", "-d", "digits", "-m", "fedu", "--target", "answer"),
        r"--target is 'answer', but",
    ),
    "client beside an experiment": (
        ("compare", "experiment.toml", "--client", "site"),
        r"--client is 'site', but",
    ),
    "a table beside a named data set": (
        ("compare", "rows.csv", "-d", "digits", *OWN),
        r"--data is 'digits', but 'rows\.csv' is given too",
    ),
    "a seed twice": (
        ("compare", "experiment.toml", "--seed", "1", "--seed", "1"),
        r"seeds is \[1, 1\], but must name each seed once",
    ),
    "a seed twice under attack": (
        ("attack", "experiment.toml", "--seed", "1", "--seed", "1"),
        r"seeds is \[1, 1\], but must name each seed once",
    ),
    "a method twice": (
        ("compare", "experiment.toml", "-m", "fedavg", "-m", "fedavg"),
        r"fedavg is given twice with the same options",
    ),
    "a percentage as target": (
        ("compare", "experiment.toml", "--to", "95"),
        r"--to is 95, but.*share.*0\.95",
    ),
    "a negative budget": (
        ("compare", "experiment.toml", "--budget=-3MB"),
        r"the number of bytes is '-3MB', but must be > 0",
    ),
    "a budget of nothing": (
        ("compare", "experiment.toml", "--budget", "0"),
        r"the number of bytes is '0', but must be > 0",
    ),
    "a budget that is no number": (
        ("compare", "experiment.toml", "--budget", "nan"),
        r"'nan', but must be",
    ),
}


@pytest.mark.parametrize("name", IGNORED)
def test_what_would_be_ignored_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.csv").write_text("site,heat,answer\na,1,x\na,2,y\nb,1,x\nb,2,y\n")
    before = {p.name for p in tmp_path.iterdir()}
    command, sentence = IGNORED[name]
    code, out, err = cli(*command)
    assert code == 2, out
    assert re.search(sentence, err), err
    assert err.count("\n") == 1, err
    assert {p.name for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "settings",
    [
        ("-s", 'training={rounds=2, eval_every=2, sampling="full"}'),
        ("-s", 'channel={name="top-k", k=3}'),
        ("-s", 'method={name="fedu", local_epochs=1}'),
        ("-s", 'method={name="lp-proj-2", local_rounds=1, inner_steps=1, dsub=4}'),
    ],
    ids=["full batches", "k", "epochs", "dense"],
)
def test_a_runs_own_config_runs_again(cli: Cli, tmp_path: Path, settings: tuple[str, ...]) -> None:
    """What is filled in from defaults is not taken for given."""
    assert cli("run", "experiment.toml", "-o", "one", *settings)[0] == 0
    assert cli("resume", "one")[0] == 0
    code, _, err = cli("run", "one/config.toml", "-o", "two")
    assert code == 0, err
    one, two = (tmp_path / name / "config.toml" for name in ("one", "two"))
    assert one.read_text() == two.read_text()


def test_a_folder_of_before_that_names_ignored_options_goes_on(cli: Cli, tmp_path: Path) -> None:
    """Config and checkpoints once held every option, used or not."""
    settings = ("-s", 'training={rounds=2, eval_every=2, sampling="full"}')
    assert cli("run", "experiment.toml", "-o", "one", *settings)[0] == 0
    for path in [tmp_path / "one/config.toml", *(tmp_path / "one/checkpoints").glob("*.json")]:
        text = path.read_text()
        old = (
            text.replace("[training]\n", "[training]\nbatch_size = 20\n")
            if path.suffix == ".toml"
            else text.replace('"training": {', '"training": {"batch_size": 20,').replace(
                '"fingerprint": "', '"fingerprint": "0'
            )
        )
        assert old != text
        path.write_text(old)
    code, _, err = cli("resume", "one")
    assert code == 0, err
    assert "damaged" not in err
