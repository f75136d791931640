"""Which layers are shared and which are personal: names, order, and nothing lost between the two
parts.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, Vector
from coterie.methods.split import join, layers, like, part

LEAF = np.ones(2)
MLP = coterie.get_model("mlp", {"hidden": "5,4"})


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("mlp", (3,), ["layer0", "layer1"]),
        ("mlr", (3,), ["w", "b"]),
        ("linear", (3,), ["w"]),
        ("cnn", (8, 8, 1), ["conv1", "conv2", "dense", "out"]),
        ("lenet", (16, 16, 1), ["conv1", "conv2", "dense1", "dense2", "out"]),
    ],
)
def test_layers_of_shipped_models_come_in_the_order_of_the_network(
    name: str, shape: tuple[int, ...], expected: list[str]
) -> None:
    model = coterie.get_model(name).build(shape, 2)
    assert layers(Vector(jax.eval_shape(model.init, jax.random.key(0)))) == expected


def test_the_head_of_the_resnet_is_its_last_layer() -> None:
    model = coterie.get_model("resnet").build((8, 8, 1), 2)
    assert layers(Vector(jax.eval_shape(model.init, jax.random.key(0))))[-1] == "out"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            {"params": {"Dense_0": {"kernel": LEAF, "bias": LEAF}, "Dense_1": {"kernel": LEAF}}},
            ["Dense_0", "Dense_1"],
        ),
        ({"layers": [LEAF, (LEAF, LEAF), LEAF]}, ["0", "1", "2"]),
        ({f"layer{i}": LEAF for i in range(12)}, [f"layer{i}" for i in range(12)]),
        (LEAF, ["parameters"]),
        ({"only": {"one": LEAF}}, ["one"]),
    ],
    ids=["flax", "lists", "more than ten", "an array", "one leaf"],
)
def test_other_trees_are_named_by_where_their_leaves_part(tree: Any, expected: list[str]) -> None:
    assert layers(Vector(tree)) == expected


def test_two_parts_make_the_whole() -> None:
    tree = {
        "a": {"w": np.full(2, 1.0), "b": np.full(1, 2.0)},
        "c": [np.full(3, 3.0)],
        "d": np.full(4, 4.0),
    }
    whole = Vector(tree)
    ours, theirs = part(whole, {"a", "d"}), part(whole, {"a", "d"}, inside=False)
    assert (ours.size, theirs.size) == (7, 3)
    for joined in (join(ours, theirs), join(theirs, ours)):
        assert jax.tree.structure(joined.tree) == jax.tree.structure(tree)
        np.testing.assert_array_equal(joined.flat(), whole.flat())
    np.testing.assert_array_equal(like(theirs, whole).flat(), [3, 3, 3])


@pytest.mark.parametrize("wrong", ["layer7", "", "layer0,", "layer0 layer1", "Layer0"])
@pytest.mark.parametrize("name", ["lg-fedavg", "fedper", "fedrep"])
def test_a_wrong_name_is_refused_in_one_sentence(name: str, wrong: str, ragged: Federation) -> None:
    with pytest.raises(InvalidInput) as caught:
        coterie.simulate(coterie.get_method(name, {"shared": wrong}), ragged, MLP, rounds=1)
    assert (
        str(caught.value)
        == f"{name}.shared is {wrong!r}, but must name layers of the model, with commas between:"
        " layer0, layer1, layer2."
    )


D = {"layer0": 5 * 4 + 5, "layer1": 4 * 5 + 4, "layer2": 3 * 4 + 3}


@pytest.mark.parametrize(
    ("name", "shared", "sent"),
    [
        ("lg-fedavg", None, ["layer2"]),
        ("fedper", None, ["layer0", "layer1"]),
        ("fedrep", "layer0", ["layer0"]),
        ("lg-fedavg", " layer0, layer2", ["layer0", "layer2"]),
    ],
)
def test_only_shared_layers_are_sent_equal_everywhere_and_billed(
    name: str, shared: str | None, sent: list[str], ragged: Federation
) -> None:
    method = coterie.get_method(
        name, {"local_steps": 2, "lr": 0.1, **({"shared": shared} if shared else {})}
    )
    result = coterie.simulate(
        method, ragged, MLP, rounds=2, eval_every=2, batch_size=4, precision="float64"
    )
    assert (
        set(result.ledger.rows()[:, 2])
        == set(result.ledger.rows()[:, 3])
        == {8 * sum(D[layer] for layer in sent)}
    )
    for layer, leaves in result.simulator.all_models().tree.items():
        for leaf in leaves.values():
            assert (leaf == leaf[0]).all() == (layer in sent), layer
