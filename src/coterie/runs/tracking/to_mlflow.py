"""MLflow: a run per run, in an experiment named after the command."""

from __future__ import annotations

import time
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from coterie.runs.tracking.base import Place

LONGEST = 500
"""Characters of a parameter that every store of MLflow takes."""
AT_ONCE = 100
"""Parameters of one request."""


class Sink:
    """To the tracking URI `where`, e.g. http://127.0.0.1:5000; else to what MLflow is set to."""

    def __init__(self, place: Place, config: dict[str, Any], step: int) -> None:
        self.client = MlflowClient(place.where)
        called = place.known.get("mlflow")
        if called is not None:
            self.run = called
            self.client.set_terminated(called, status="RUNNING")
            return
        title = place.group or "coterie"
        found = self.client.get_experiment_by_name(title)
        number = self.client.create_experiment(title) if found is None else found.experiment_id
        self.run = self.client.create_run(number, run_name=place.name).info.run_id
        place.remember("mlflow", self.run)
        options = [Param(key, str(value)[:LONGEST]) for key, value in config.items()]
        for begin in range(0, len(options), AT_ONCE):
            self.client.log_batch(self.run, params=options[begin : begin + AT_ONCE])

    def log(self, step: int, values: dict[str, float]) -> None:
        now = int(1000 * time.time())
        told = [Metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self.run, metrics=told)

    def close(self, *, failed: bool) -> None:
        self.client.set_terminated(self.run, status="FAILED" if failed else "FINISHED")
