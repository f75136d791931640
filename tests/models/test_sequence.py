"""Models of sequences compute what their equations say, and learn from whole numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import InvalidInput, get_model
from coterie.data import from_arrays

RNG = np.random.default_rng(3)
X = RNG.integers(0, 5, (3, 4))


def outputs(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    model = get_model(name, options).build((4,), 5)
    p = model.init(jax.random.key(1))
    return jax.tree.map(np.asarray, p), np.asarray(model.outputs(p, X.astype(np.float32)))


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def test_lstm_is_its_equations() -> None:
    p, found = outputs("lstm", {"width": 2, "hidden": 3})
    for row, out in zip(X, found, strict=True):
        values = [p["table"][c] for c in row]
        for layer in ("lstm0", "lstm1"):
            h, c, seen = np.zeros(3), np.zeros(3), []
            for v in values:
                i, f, g, o = np.split(p[layer]["w"] @ np.concatenate([v, h]) + p[layer]["b"], 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                seen.append(h)
            values = seen
        np.testing.assert_allclose(out, p["out"]["w"] @ values[-1] + p["out"]["b"], rtol=1e-5)


def norm(p: Any, v: Any) -> Any:
    return (v - v.mean()) / np.sqrt(v.var() + 1e-5) * p["scale"] + p["shift"]


def test_transformer_is_its_equations() -> None:
    p, found = outputs("transformer", {"width": 4, "heads": 2, "hidden": 3})
    for row, out in zip(X, found, strict=True):
        values = [p["table"][c] + p["places"][t] for t, c in enumerate(row)]
        for layer in (p["layer0"], p["layer1"]):
            looked = [np.split(layer["look"]["w"] @ norm(layer["norm1"], v), 3) for v in values]
            after = []
            for t, v in enumerate(values):
                seen = []
                for head in (slice(0, 2), slice(2, 4)):
                    so_far = [(k[head], told[head]) for _, k, told in looked[: t + 1]]
                    fits = [looked[t][0][head] @ k / np.sqrt(2) for k, _ in so_far]
                    share = np.exp(fits) / np.exp(fits).sum()
                    seen.append(share @ np.array([told for _, told in so_far]))
                v = v + layer["mix"]["w"] @ np.concatenate(seen)
                inner = layer["dense1"]["w"] @ norm(layer["norm2"], v) + layer["dense1"]["b"]
                v = v + layer["dense2"]["w"] @ np.maximum(inner, 0) + layer["dense2"]["b"]
                after.append(v)
            values = after
        last = p["out"]["w"] @ norm(p["norm"], values[-1]) + p["out"]["b"]
        np.testing.assert_allclose(out, last, rtol=1e-4, atol=1e-6)


def test_parameters_are_counted_by_hand() -> None:
    lstm = 80 * 8 + 1024 * (8 + 256 + 1) + 1024 * (256 + 256 + 1) + 80 * (256 + 1)
    assert get_model("lstm").build((80,), 80).parameters() == lstm == 817_872
    layer = 2 * 2 * 32 + 4 * 32 * 32 + 64 * (32 + 1) + 32 * (64 + 1)
    small = (80 + 80) * 32 + 2 * layer + 2 * 32 + 80 * (32 + 1)
    assert get_model("transformer").build((80,), 80).parameters() == small


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lstm", {"width": 4, "hidden": 8, "layers": 1}),
        pytest.param(
            "transformer",
            {"width": 8, "heads": 2, "hidden": 8, "layers": 1},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_whole_numbers_are_learnt_from(name: str, options: dict[str, Any]) -> None:
    """Each client counts on from the last number in its own way; a linear map of the numbers could
    not tell them apart.
    """
    x = RNG.integers(0, 5, (80, 3)).astype(np.int16)
    owner = np.repeat([0, 1], 40)
    y = (x[:, -1] + 1 + owner) % 5
    fed = from_arrays("counting", x, y, owner, classes=5)
    assert fed.train.x.dtype == np.int16
    method = coterie.Local(lr=0.05, local_steps=10, optimizer="adam")
    result = coterie.simulate(
        method, fed, get_model(name, options), rounds=15, eval_every=15, batch_size=20
    )
    assert result.client_scores().mean() > 0.9


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"'lstm' takes a row of whole numbers, .* \(28, 28\)"):
        get_model("lstm").build((28, 28), 10)
    with pytest.raises(InvalidInput, match="heads is 3, but must divide the width, 32"):
        get_model("transformer", {"heads": 3})
