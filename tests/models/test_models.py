"""The papers' models have the papers' numbers of parameters; foreign models need a few lines."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, Model


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes", "parameters"),
    [
        ("mlr", {}, (60,), 10, 610),
        ("mlp", {"hidden": "100"}, (784,), 10, 79_510),
        ("mlp", {"hidden": "100"}, (28, 28), 10, 79_510),
        ("mlp", {"hidden": "100,100"}, (784,), 62, 94_862),
        ("lenet", {}, (32, 32, 3), 10, 62_006),
        ("lenet", {}, (3072,), 10, 62_006),
        ("resnet", {}, (28, 28), 10, 678_794),
        ("resnet", {}, (784,), 10, 678_794),
        ("resnet", {"depth": 18}, (32, 32, 3), 10, 11_184_650),
        ("resnet", {"depth": 34}, (32, 32, 3), 10, 21_296_522),
        ("cnn", {}, (28, 28, 1), 10, 1_663_370),
        ("mlp", {"hidden": "100"}, (561,), 6, 561 * 100 + 100 + 606),
        ("mlp", {"hidden": "20"}, (100,), 2, 100 * 20 + 20 + 42),
        ("mlp", {"hidden": "100,100"}, (784,), 10, 78_500 + 10_100 + 1_010),
        ("linear", {}, (7,), 1, 7),
    ],
)
def test_parameter_counts(
    name: str, options: dict[str, Any], shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    assert coterie.get_model(name, options).build(shape, classes).parameters() == parameters


def flat(model: Any) -> np.ndarray:
    """All numbers of a model, in the precision it has.

    (`Vector.flat` goes through JAX, which is in single precision outside a run.)
    """
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in model.leaves])


SHIPPED = [
    ("mlr", {}, (6,)),
    ("mlp", {"hidden": "5,4"}, (6,)),
    ("linear", {}, (6,)),
    ("lenet", {}, (16, 16)),
    ("cnn", {}, (8, 8, 2)),
    ("resnet", {}, (8, 8)),
]


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        pytest.param(*s, id=s[0], marks=[pytest.mark.slow] if s[0] in ("resnet", "lenet") else [])
        for s in SHIPPED
    ],
)
def test_outputs_are_class_major_and_samples_do_not_mix(
    name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    model = coterie.get_model(name, options).build(shape, 3)
    parameters = jax.tree.map(
        lambda p: p + 0.01, model.init(jax.random.key(0))
    )  # "linear" starts at zero
    x = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    apply = jax.jit(model.apply)
    whole = np.asarray(apply(parameters, x))
    assert model.class_major
    assert whole.shape == (3, 4)
    np.testing.assert_allclose(
        np.asarray(model.outputs(parameters, x)), whole.T, rtol=1e-4, atol=1e-5
    )
    turned = np.asarray(apply(parameters, x[::-1].copy()))
    np.testing.assert_allclose(turned, whole[:, ::-1], rtol=1e-4, atol=1e-5)
    assert np.abs(whole - whole[:, :1]).max() > 1e-4, "different samples, different outputs"
    flat = np.asarray(apply(parameters, x.reshape(4, -1)))
    np.testing.assert_allclose(flat, whole, rtol=1e-5, atol=1e-6)


def test_a_perceptron_is_affine_maps_with_relu_between() -> None:
    model = coterie.get_model("mlp", {"hidden": "5,4"}).build((6,), 3)
    p = jax.tree.map(np.asarray, model.init(jax.random.key(1)))
    x = np.random.default_rng(1).standard_normal((7, 6)).astype(np.float32)
    h = x
    for layer in ("layer0", "layer1"):
        h = np.maximum(h @ p[layer]["w"].T + p[layer]["b"], 0)
    np.testing.assert_allclose(
        model.outputs(p, x), h @ p["layer2"]["w"].T + p["layer2"]["b"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cnn", (3, 3)),
        ("lenet", (15, 15)),
        ("resnet", (7, 7)),
        ("cnn", (5,)),
        ("lenet", (2, 3, 4, 5)),
    ],
)
def test_inputs_that_are_no_images_or_too_small_are_refused(
    name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidInput, match="images"):
        coterie.get_model(name).build(shape, 10)


@pytest.mark.parametrize("hidden", ["", "0", "-3", "a", "10,", "10;20", "1.5", ","])
def test_bad_widths_are_refused(hidden: str) -> None:
    with pytest.raises(InvalidInput, match=r"mlp.hidden is"):
        coterie.get_model("mlp", {"hidden": hidden})


def test_another_depth_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"resnet\.depth is 50, but must be 18 or 34"):
        coterie.get_model("resnet", {"depth": 50})


def test_bad_models_are_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="two functions"):
        Model(init=None, apply=lambda p, x: x)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"model.l2 is -1"):
        Model(init=lambda k: {}, apply=lambda p, x: x, l2=-1)
    with pytest.raises(InvalidInput, match=r"model.l2 is nan"):
        Model(init=lambda k: {}, apply=lambda p, x: x, l2=float("nan"))
    with pytest.raises(InvalidInput, match="the model is 3, but must be"):
        coterie.simulate("local", ragged, 3, rounds=1)  # type: ignore[arg-type]


def test_l2_is_added_to_every_clients_loss(ragged: Federation) -> None:
    """One exact step: x − μ(∇f + l2·x), so runs with and without l2 differ by μ·l2·x₀."""
    run = lambda l2: coterie.simulate(
        coterie.Local(lr=0.1, local_steps=1),
        ragged,
        coterie.get_model("mlr", {"l2": l2}),
        rounds=1,
        sampling="full",
        precision="float64",
    )
    with_, without = run(0.5), run(0.0)
    start = flat(with_.simulator.template)
    np.testing.assert_allclose(
        flat(without.personal(1)) - flat(with_.personal(1)), 0.1 * 0.5 * start, atol=1e-12
    )


def test_l2_is_off_unless_it_is_asked_for_and_papers_experiments_say_which() -> None:
    """The papers write an L2 term into their convex model and name no value: a file that stands for
    a paper's table tells what it took.
    """
    spec = coterie.get_model("mlr")
    assert spec.l2 == 0
    assert "optional L2" in spec.summary
    folder = Path(__file__).parents[2] / "experiments"
    files = [f for paper in ("fedu", "lp-proj") for f in sorted((folder / paper).rglob("*.toml"))]
    models = {f: tomllib.loads(f.read_text("utf-8")).get("model", {"name": "mlr"}) for f in files}
    convex = [f for f, model in models.items() if model["name"] == "mlr"]
    assert convex
    assert [f.name for f in convex if "l2" not in models[f]] == []


TINY: dict[str, Any] = {"rounds": 3, "eval_every": 3, "batch_size": 4}


def check_foreign(model: Model, federation: Federation) -> None:
    native = coterie.simulate(
        coterie.FedU(local_steps=2, lr=0.1), federation, model, **TINY, train_metrics=True
    )
    assert native.simulator.template.size == 4 * 6 + 6 + 6 * 3 + 3
    assert not np.allclose(native.personal(0).flat(), native.personal(1).flat())
    before, after = (
        snapshot.scores["train"].loss.mean()
        for snapshot in (native.snapshots[0], native.snapshots[-1])
    )
    assert after < before, "it must learn"
    assert native.client_scores().shape == (5,)


def test_a_flax_model_works_with_a_few_lines(ragged: Federation) -> None:
    nn = pytest.importorskip("flax.linen")
    net = nn.Sequential([nn.Dense(6), nn.relu, nn.Dense(3)])
    model = Model(init=lambda key: net.init(key, jnp.zeros((1, 4))), apply=net.apply)
    check_foreign(model, ragged)


def test_an_equinox_model_works_with_a_few_lines(ragged: Federation) -> None:
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.MLP(4, 3, 6, 1, key=jax.random.key(0))
    _, rest = eqx.partition(net, eqx.is_array)
    model = Model(
        init=lambda key: eqx.filter(eqx.nn.MLP(4, 3, 6, 1, key=key), eqx.is_array),
        apply=lambda parameters, x: jax.vmap(eqx.combine(parameters, rest))(x),
    )
    check_foreign(model, ragged)


def test_sample_major_and_class_major_models_train_alike(ragged: Federation) -> None:
    native = coterie.get_model("mlr").build((4,), 3)
    turned = Model(native.init, lambda p, x: native.apply(p, x).T, class_major=False)
    a, b = (
        coterie.simulate(coterie.Local(local_steps=2), ragged, m, **TINY, precision="float64")
        for m in (native, turned)
    )
    np.testing.assert_allclose(flat(a.personal(2)), flat(b.personal(2)), rtol=1e-10)
    np.testing.assert_allclose(
        a.snapshots[-1].scores["test"].loss, b.snapshots[-1].scores["test"].loss, rtol=1e-10
    )
