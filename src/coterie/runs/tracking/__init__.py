"""Runs told to TensorBoard, MLflow or Weights & Biases while they train (extra `[track]`).

`--track NAME` on the command line, `coterie.tracker(NAME, FOLDER)` in Python.
"""

from coterie.runs.tracking.base import TRACKERS, Tracking, following, tracker, use, wanted

__all__ = ["TRACKERS", "Tracking", "following", "tracker", "use", "wanted"]
