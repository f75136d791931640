"""ONNX files give what exported models give, by onnxruntime, from raw columns."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest

import coterie
from coterie import InvalidInput
from coterie.data.prepared import Prepared
from coterie.models import get_model
from coterie.models.base import Fitted, Model, ModelSpec, model_spec
from coterie.models.exported.model import Exported, predict, read
from coterie.models.exported.onnx import to_onnx
from tests.support.clinic import rows

pytest.importorskip("onnx", reason="onnx is an extra")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is for tests")


def session(model: Exported) -> Any:
    return runtime.InferenceSession(to_onnx(model).SerializeToString())


def exported(name: str, prepared: Prepared, outputs: int, **options: Any) -> Exported:
    """A model with parameters at random: what it says does not matter here."""
    spec, inputs = get_model(name, options), (len(prepared.features),)
    rng = np.random.default_rng(1)
    shapes = spec.build(inputs, outputs).predictor(inputs)
    parameters = jax.tree.map(lambda s: rng.uniform(0.1, 1, s.shape).astype(np.float32), shapes)
    labels = prepared.labels
    return Exported(spec, prepared.task, inputs, outputs, parameters, prepared, labels)


WORDS = {"yes": 1.0, "no": 0.0, None: np.nan}


def number(value: Any) -> float:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC).timestamp()
    return WORDS[value] if value in WORDS else float(value)


def raw(prepared: Prepared, columns: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """Columns as the ONNX file wants them."""
    return {
        column.name: (
            np.array([[v or ""] for v in columns[column.name]], object)
            if column.kind == "category"
            else np.array([[number(v)] for v in columns[column.name]])
        )
        for column in prepared.columns
    }


def prepared_of(target: str, **options: Any) -> Prepared:
    drop = sorted({"patient", "answer", "risk"} - {target})
    table = pa.table(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", coterie.Notice)
        made = coterie.from_table(table, client="site", target=target, drop=drop, **options)
    found: Prepared = made.facts["prepared"]
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [("mlr", {}), ("mlp", {"hidden": "7,5"}), ("mlp", {"hidden": "7,5", "norm": "batch"})],
)
def test_classes_from_raw_columns(name: str, options: dict[str, Any]) -> None:
    prepared = prepared_of("answer")
    assert {c.kind for c in prepared.columns} == {"date", "number", "category", "boolean"}
    assert any(c.flagged for c in prepared.columns)
    model = exported(name, prepared, 2, **options)
    new = rows(50, seed=4)
    new["colour"][3] = "violet"
    label, chances = session(model).run(["label", "probabilities"], raw(prepared, new))
    with pytest.warns(coterie.Notice, match="violet"):
        want = predict(model, pa.table(new))
    assert label.tolist() == want.values.tolist()
    np.testing.assert_allclose(chances, want.probabilities, atol=1e-5)


def test_values_in_the_targets_own_units() -> None:
    prepared = prepared_of("risk", standardise_target=True)
    assert prepared.target_scale != 1
    model = exported("linear", prepared, 1)
    new = rows(50, seed=4)
    (value,) = session(model).run(["value"], raw(prepared, new))
    want = predict(model, pa.table(new)).values
    np.testing.assert_allclose(value[:, 0], want, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs", "options"),
    [
        ("lenet", (16, 16, 1), {}),
        pytest.param("cnn", (9, 8, 3), {}, marks=pytest.mark.slow),
        pytest.param("resnet", (12, 11, 3), {}, marks=pytest.mark.slow),
        pytest.param("resnet", (12, 11, 3), {"depth": 18}, marks=pytest.mark.slow),
        pytest.param("resnet", (12, 11, 3), {"norm": "batch"}, marks=pytest.mark.slow),
        pytest.param("lenet", (784,), {}, marks=pytest.mark.slow),
    ],
)
def test_pictures(name: str, inputs: tuple[int, ...], options: dict[str, Any]) -> None:
    spec = get_model(name, options)
    rng = np.random.default_rng(1)
    shapes = spec.build(inputs, 4).predictor(inputs)
    parameters = jax.tree.map(lambda s: rng.uniform(-0.1, 0.2, s.shape).astype(np.float32), shapes)
    if "norm" in options:
        parameters = parameters._replace(statistics=jax.tree.map(np.abs, parameters.statistics))
    model = Exported(spec, "classification", inputs, 4, parameters, labels=("a", "b", "c", "d"))
    x = np.random.default_rng(0).normal(size=(5, *inputs)).astype(np.float32)
    label, chances = session(model).run(None, {"x": x})
    want = predict(model, x)
    np.testing.assert_allclose(chances, want.probabilities, atol=1e-5)
    assert label.tolist() == want.values.tolist()
    assert len(session(model).run(None, {"x": x[:1]})[0]) == 1


@pytest.mark.parametrize(
    ("name", "inputs"), [("mlp", (4,)), pytest.param("resnet", (12, 11, 3), marks=pytest.mark.slow)]
)
def test_batch_normalisation_by_a_clients_statistics(
    name: str, inputs: tuple[int, ...], tmp_path: Path
) -> None:
    """In ONNX, and from a folder that was written and read again."""
    spec, rng = get_model(name, {"norm": "batch"}), np.random.default_rng(1)
    built = spec.build(inputs, 3)
    assert built.statistics is not None
    x, parameters = rng.normal(size=(5, *inputs)).astype(np.float32), built.init(jax.random.key(0))
    statistics = built.statistics.train(parameters, x, np.ones(5, np.float32))[1]
    model = Exported(spec, "classification", inputs, 3, Fitted(parameters, statistics))
    wanted = predict(model, x).probabilities
    model.write(tmp_path)
    again = predict(read(tmp_path), x).probabilities
    np.testing.assert_array_equal(again, wanted)
    np.testing.assert_allclose(session(model).run(None, {"x": x})[1], wanted, atol=1e-5)
    assert np.ptp(wanted, axis=0).max() > 0.01


def test_a_column_may_be_called_as_an_output_is() -> None:
    table = {"site": ["a", "b"] * 8, "label": [*range(16)], "kind": ["x", "y"] * 8}
    prepared = coterie.from_table(table, client="site", target="kind").facts["prepared"]
    names = [out.name for out in session(exported("mlr", prepared, 2)).get_outputs()]
    assert names == ["output_label", "probabilities"]


def test_models_of_ones_own_are_refused() -> None:
    class Own(ModelSpec):
        """Something else."""

        def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
            return get_model("mlr").build(input_shape, outputs)

    from coterie.models.base import MODELS

    spec = model_spec("own-thing")(Own)()
    try:
        p = spec.build((3,), 2).init(jax.random.key(0))
        with pytest.raises(InvalidInput, match="'own-thing' cannot be written as ONNX"):
            to_onnx(Exported(spec, "classification", (3,), 2, p))
    finally:
        del MODELS["own-thing"]
