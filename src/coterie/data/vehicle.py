"""Vehicle Sensor (Duarte & Hu 2004): 23 sensors of a network that heard and felt two kinds of
vehicles pass; every sensor is a client.

Three forms are in use and all are read:

- the authors' feature files, as the FedU paper took them: folders `…aav…/s<sensor>/` and
  `…dw…/s<sensor>/` (runs of the two vehicles), each with two files whose names hold "feat", one
  acoustic, one seismic; the first 50 numbers of a line of either are the features;
- `vehicle.mat` of the MOCHA paper: cells X and Y, one per sensor;
- the parts of it that others publish: `mytrain.json` / `mytest.json` (LEAF form) or an .npz with X,
  y and client.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.federation import Federation
from coterie.data.files import Published, corrupt, either, missing, read_bytes, roots
from coterie.data.labelled import Prepared
from coterie.data.partition import natural

FEATURES = 100
PER_KIND = 50
SENSOR = re.compile(r"[a-z_]*(\d+)", re.IGNORECASE)
VEHICLE = Published(
    "Vehicle Sensor",
    ("the folders of the runs (aav…, dw…), or vehicle.mat, or mytrain.json",),
    ("vehicle", "vehicle_sensor/Original_Data", "vehicle_sensor"),
    "http://www.ecs.umass.edu/~mduarte/Software.html (first at http://www.ece.wisc.edu/~sensit)",
)


def _table(path: Path) -> NDArray[np.float32]:
    try:
        table = np.loadtxt(io.BytesIO(read_bytes(path)), dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise corrupt(path, str(error).split(";")[0].rstrip(".")) from None
    if table.shape[1] < PER_KIND:
        raise corrupt(
            path, f"its lines have {table.shape[1]} numbers instead of at least {PER_KIND}"
        )
    return table[:, :PER_KIND]


def runs(folder: Path) -> list[tuple[Path, list[Path], int, int]]:
    """The authors' tree: (folder, its two feature files, sensor, 1 for AAV or 0 for DW) per run and
    sensor.
    """
    found = []
    for sensor_folder in sorted(p for p in folder.rglob("*") if p.is_dir()):
        number, run = SENSOR.fullmatch(sensor_folder.name), sensor_folder.parent.name.lower()
        files = sorted(f for f in sensor_folder.iterdir() if "feat" in f.name and f.is_file())
        if number and len(files) == 2 and ("aav" in run or "dw" in run):
            found.append((sensor_folder, files, int(number[1]), int("aav" in run)))
    return found


def _parse_runs(found: list[tuple[Path, list[Path], int, int]]) -> Arrays:
    parts = []
    for sensor_folder, files, sensor, vehicle in found:
        first, second = (_table(f) for f in files)
        if len(first) != len(second):
            raise corrupt(
                sensor_folder,
                f"its acoustic and seismic files have {len(first)} and {len(second)} lines",
            )
        parts.append(
            (
                np.concatenate([first, second], 1),
                np.full(len(first), vehicle),
                np.full(len(first), sensor),
            )
        )
    x, y, sensors = (np.concatenate(column) for column in zip(*parts, strict=True))
    return {"x": x, "y": y, "sensor": sensors}


def _parse_mat(path: Path) -> Arrays:
    from scipy.io import loadmat

    try:
        mat = loadmat(path)
        cells = [
            (np.asarray(x, np.float32), np.asarray(y).reshape(-1))
            for x, y in zip(mat["X"].reshape(-1), mat["Y"].reshape(-1), strict=True)
        ]
    except Exception as error:  # scipy raises many kinds on damaged files
        raise corrupt(path, str(error) or type(error).__name__) from None
    return _stack(path, [(x, y, k) for k, (x, y) in enumerate(cells)])


def _parse_json(paths: list[Path]) -> Arrays:
    parts = []
    for path in paths:
        try:
            content = json.loads(read_bytes(path))
            for user in content["users"]:
                data = content["user_data"][user]
                parts.append(
                    (
                        np.asarray(data["x"], np.float32),
                        np.asarray(data["y"]).reshape(-1),
                        int(str(user).split("_")[-1]),
                    )
                )
        except (ValueError, KeyError, TypeError) as error:
            raise corrupt(
                path, f"it is not a LEAF file ({type(error).__name__}: {error})"
            ) from None
    return _stack(paths[0], parts)


def _parse_npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return _stack(path, [(stored["X"].astype(np.float32), stored["y"], stored["client"])])
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise corrupt(path, str(error)) from None


def _stack(path: Path, parts: list[tuple[NDArray[Any], NDArray[Any], Any]]) -> Arrays:
    """One table of all sensors, its labels −1/+1 (or 0/1) made 0/1."""
    for x, y, _ in parts:
        if (
            x.ndim != 2
            or x.shape[1] != FEATURES
            or len(x) != len(y)
            or not set(np.unique(y).tolist()) <= {-1, 0, 1}
        ):
            raise corrupt(
                path,
                f"a sensor has inputs of shape {x.shape} for {len(y)} labels; {FEATURES} features"
                " and labels −1, +1 are expected",
            )
    sensors = [np.broadcast_to(np.asarray(sensor), y.shape) for _, y, sensor in parts]
    return {
        "x": np.concatenate([x for x, _, _ in parts]),
        "y": (np.concatenate([y for _, y, _ in parts]) > 0).astype(np.int32),
        "sensor": np.concatenate(sensors).astype(np.int64),
    }


def _find(data_dir: str | None) -> tuple[list[Path], Callable[[], Arrays], tuple[str, str]] | None:
    """The files of the first form that is found, how to read them, and the names of the two
    labels.
    """
    for root in roots(data_dir):
        own = ("",) if data_dir and root == Path(data_dir).expanduser() else ()
        for folder in (root / f for f in (*VEHICLE.folders, *own)):
            if not folder.is_dir():
                continue
            if found := runs(folder):
                return (
                    [f for _, files, _, _ in found for f in files],
                    lambda found=found: _parse_runs(found),
                    ("DW", "AAV"),
                )  # type: ignore[misc]
            if mat := either(folder / "vehicle.mat"):
                return [mat], lambda mat=mat: _parse_mat(mat), ("−1", "+1")  # type: ignore[misc]
            leaf = [
                path for name in ("mytrain.json", "mytest.json") if (path := either(folder / name))
            ]
            if leaf:
                return leaf, lambda leaf=leaf: _parse_json(leaf), ("−1", "+1")  # type: ignore[misc]
            if packed := sorted(folder.glob("vehicle*.npz")):
                return packed[:1], lambda packed=packed: _parse_npz(packed[0]), ("−1", "+1")  # type: ignore[misc]
    return None


@source("vehicle")
class Vehicle(Prepared):
    """Vehicle Sensor: one client per sensor (23), 100 acoustic and seismic features, 2 kinds of
    vehicles.
    """

    def published(self) -> Published:
        return VEHICLE

    def found(self) -> Path | None:
        there = _find(self.data_dir)
        return there[0][0].parent if there else None

    def load(self, seed: int) -> Federation:
        found = _find(self.data_dir)
        if found is None:
            raise missing(VEHICLE, self.data_dir, "it cannot be downloaded automatically")
        files, parse, labels = found
        arrays = cached("vehicle", files, parse)
        if len(np.unique(arrays["sensor"])) < 2:
            raise InvalidInput(
                f"{files[0].parent} holds only one sensor of Vehicle Sensor; a federation of one"
                " client is not what it is for."
            )
        owner, sensors = natural(arrays["sensor"])
        facts = {"labels": list(labels), "clients": [f"sensor {s}" for s in sensors]}
        return self.assemble(
            arrays["x"], arrays["y"], owner, seed, classes=2, facts=facts, scaling=None
        )
