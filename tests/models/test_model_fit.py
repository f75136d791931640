"""A model of one's own that does not fit the data is refused before a run, in one sentence."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, Model


def line(outputs: int, dtype: Any = jnp.float32, **more: Any) -> Model:
    return Model(
        init=lambda key: {"w": jnp.zeros((4, outputs), dtype)},
        apply=lambda p, x: x @ p["w"],
        **more,
    )


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            line(2),
            r"the model 'custom' gives outputs of shape \(2, 2\) for 2 samples of shape \(4,\), but"
            r" must give \(2, 3\)\.",
        ),
        (line(4), r"gives outputs of shape \(2, 4\)"),
        (line(3, class_major=True), r"gives outputs of shape \(2, 3\) .* must give \(3, 2\)\."),
        (
            Model(lambda key: {"w": jnp.zeros(4)}, lambda p, x: x @ p["w"]),
            r"gives outputs of shape \(2,\) .* must give \(2, 3\)\.",
        ),
        (
            Model(lambda key: {}, lambda p, x: jnp.zeros((len(x), 3))),
            "the model 'custom' has no parameters",
        ),
        (
            line(3, jnp.int32),
            r"the model 'custom' has parameters \['w'\] of type int32, but all must be floating",
        ),
        (
            Model(lambda key: {"w": jnp.zeros((5, 3))}, lambda p, x: x @ p["w"]),
            r"the model 'custom' fails on inputs of shape \(2, 4\) \(.+\)\.",
        ),
        (
            Model(lambda key: 1 / 0, lambda p, x: x),
            r"the model 'custom' cannot be initialised \(division by zero\)\.",
        ),
        (
            Model(lambda key: {"w": jnp.zeros((4, 3))}, lambda p, x: (x @ p["w"], 1)),
            "the model 'custom' gives tuple, but must give one array",
        ),
        (
            Model(
                lambda key: {"w": jnp.zeros((4, 3))}, lambda p, x: (x @ p["w"]).astype(jnp.int32)
            ),
            "the model 'custom' gives outputs of type int32, but they must be floating point",
        ),
        (
            Model(lambda key: {"w": "text"}, lambda p, x: x),
            "the model 'custom' cannot be initialised",
        ),
    ],
)
def test_what_does_not_fit_is_refused(model: Model, sentence: str, ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        coterie.simulate("local", ragged, model, rounds=1)
    assert "\n" not in str(caught.value)


def test_what_fits_is_not() -> None:
    line(3).check((4,), 3, "classification")
    line(1).check((4,), 1, "regression")
    coterie.get_model("mlr").build((4,), 3).check((4,), 3, "classification")


def test_widths_as_a_list_are_the_same_model() -> None:
    text = coterie.get_model("mlp", {"hidden": "10,20"})
    for given in ([10, 20], (10, 20), "10, 20", np.array([10, 20])):
        assert coterie.get_model("mlp", {"hidden": given}).build((3,), 2).parameters() == (
            text.build((3,), 2).parameters()
        )
    assert coterie.get_model("mlp", {"hidden": [10, 20]}) == text
    assert coterie.get_model("mlp", {"hidden": [10, 20]}).to_config() == text.to_config()
    assert coterie.get_model("mlp", {"hidden": 10}) == coterie.get_model("mlp", {"hidden": [10]})
    assert text.to_config()["hidden"] == "10,20"
    assert coterie.get_model("mlp", {"hidden": "10, 20"}).to_config()["hidden"] == "10, 20"


@pytest.mark.parametrize("hidden", [[], [0], [10.5], [True], ["ten"], [[10]], 0, True, None, 1.5])
def test_wrong_widths_in_a_list_are_refused(hidden: Any) -> None:
    with pytest.raises(InvalidInput, match=r"mlp\.hidden is .*\[100, 100\]\.$"):
        coterie.get_model("mlp", {"hidden": hidden})
