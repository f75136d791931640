"""`coterie compare`: predicted times, and methods that differ in their schedules only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.core.schedule import InverseSqrt, InverseTime
from coterie.methods import FedAvg, Local
from coterie.runs.compare import slugs, with_locals
from coterie.runs.experiment import Contender

Cli = Callable[..., tuple[int, str, str]]

TWO = """
[data]
name = "digits"
clients = 4
[training]
rounds = 2
eval_every = 2
batch_size = 8
[[methods]]
name = "fedavg"
local_steps = 1
lr = { kind = "inverse-time", scale = 0.5, shift = 1.0 }
[[methods]]
name = "fedavg"
local_steps = 1
lr = { kind = "inverse-time", scale = 0.0001, shift = 1.0 }
"""


def test_a_comparison_on_a_network_ends_with_its_times(cli: Cli) -> None:
    code, out, err = cli(
        "compare", "experiment.toml", "-s", "network={latency=0.04}", "-o", "there"
    )
    assert code == 0, err
    assert "Predicted time" in out


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_two_schedules_have_a_local_each(cli: Cli, tmp_path: Path, jobs: str) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    code, out, err = cli("compare", "two.toml", "-o", "there", "--jobs", jobs)
    assert code == 0, err
    runs = {p.parent.name: p.read_text() for p in tmp_path.glob("there/runs/*/config.toml")}
    assert len(runs) == 4
    assert sorted(n for n in runs if n.startswith("local")) == [
        "local-1-steps-lr-inverse-time-0.0001-1-sampled-seed0",
        "local-1-steps-lr-inverse-time-0.5-1-sampled-seed0",
    ]
    assert "inverse-time 0.0001" in out


def labelled(*methods: FedAvg | Local) -> list[tuple[str, Contender]]:
    return with_locals([Contender(m) for m in methods])[0]


def test_no_two_methods_share_a_label_or_a_folder() -> None:
    close = [FedAvg(lr=InverseTime(0.1 + d, 1.0)) for d in (0.0, 1e-9)]
    kinds = [FedAvg(lr=InverseSqrt(0.1)), FedAvg(lr=0.1), FedAvg(lr=0.1 + 1e-9)]
    found = labelled(*close, *kinds)
    labels = [label for label, _ in found]
    assert len(labels) == len(set(labels)) == 10
    assert len(set(slugs(found))) == 10


def test_a_local_that_was_asked_for_serves_its_equal() -> None:
    """Its step count is without effect beside epochs, whatever it is."""
    found = labelled(Local(local_epochs=2), FedAvg(local_epochs=2))
    assert [label for label, _ in found] == ["Local", "FedAvg"]
