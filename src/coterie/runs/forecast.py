"""What a run in a folder would have taken on a real network."""

from __future__ import annotations

from pathlib import Path

from coterie.network import Forecast, LinkSpeeds, Network, forecast_experiment
from coterie.runs.experiment import Experiment


def forecast_run(network: Network, folder: Path, links: LinkSpeeds | None = None) -> Forecast:
    """Of a finished run in a folder, on any network: nothing is trained again."""
    experiment = Experiment.from_file(folder / "config.toml")
    return forecast_experiment(network, experiment, folder, links)
