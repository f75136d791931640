"""P and Pᵀ: adjoint, unit or orthonormal rows, the promised structure and memory, drawn from a
seed.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie import InvalidInput
from coterie.core.vector import Vector
from coterie.coupling import layered, projection
from coterie.coupling.projection import Blocks, Projection

LIKE = Vector({"a": jnp.zeros((3, 5)), "b": jnp.zeros(4), "c": jnp.zeros((2, 2, 2))})
D = LIKE.size
KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense"},
    "orthogonal": {"kind": "orthogonal"},
    "one block": {"kind": "block", "blocks": 1},
    "blocks of unequal size": {"kind": "block", "blocks": 4},
    "blocks, regenerated": {"kind": "block", "blocks": 4, "regenerate": True},
    "layer": {"kind": "layer"},
    "srht": {"kind": "srht"},
    "identity": {"kind": "identity"},
}


@cache
def draw(label: str, dsub: int = 10, seed: int = 0) -> Projection:
    return projection.draw(like=LIKE, dsub=dsub, key=jax.random.key(seed), **KINDS[label])


# P is an argument of these programs, not part of them: one for every kind and shape, whatever the
# seed.
project = jax.jit(lambda p, x: p(x))
back = jax.jit(lambda p, v: p.back(v, LIKE))
columns = jax.jit(lambda p: jax.vmap(lambda row: p(LIKE.like(row)))(jnp.eye(D)))


def dense(p: Projection) -> np.ndarray:
    """The matrix, column by column."""
    return np.asarray(columns(p)).T


@pytest.mark.parametrize("label", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_back_is_the_adjoint(label: str, seed: int) -> None:
    p = draw(label, seed=seed % 3)
    rng = np.random.default_rng(seed)
    x, v = (
        LIKE.like(jnp.asarray(rng.standard_normal(D), jnp.float32)),
        jnp.asarray(rng.standard_normal(p.dsub), jnp.float32),
    )
    forth, returned = project(p, x), back(p, v)
    assert float(jnp.vdot(forth, v)) == pytest.approx(
        float(jnp.vdot(x.flat(), returned.flat())), abs=2e-5
    )
    assert forth.shape == (p.dsub,)
    assert jax.tree.structure(returned) == jax.tree.structure(LIKE)
    assert [leaf.shape for leaf in returned.leaves] == [leaf.shape for leaf in LIKE.leaves]


@pytest.mark.parametrize("label", [k for k in KINDS if k != "identity"])
@pytest.mark.parametrize("dsub", [4, 9, 10, D])
def test_rows_have_unit_length(label: str, dsub: int) -> None:
    matrix = dense(draw(label, dsub))
    assert matrix.shape == (dsub, D)
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-5)


def test_orthogonal_rows_are_orthonormal_and_identity_is() -> None:
    matrix = dense(draw("orthogonal"))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(10), atol=1e-5)
    np.testing.assert_array_equal(dense(draw("identity")), np.eye(D))
    gram = dense(draw("dense")) @ dense(draw("dense")).T
    assert np.abs(gram - np.eye(10)).max() > 0.05, "dense rows are only unit, not orthogonal"


@pytest.mark.parametrize("label", ["blocks of unequal size", "blocks, regenerated"])
@pytest.mark.parametrize("dsub", [4, 10, 11])
def test_blocks_lie_on_the_diagonal_and_nowhere_else(label: str, dsub: int) -> None:
    p = draw(label, dsub)
    assert isinstance(p, Blocks)
    matrix, inside = dense(p), np.zeros((dsub, D), bool)
    for i in range(4):
        inside[p.rows[i] : p.rows[i + 1], p.columns[i] : p.columns[i + 1]] = True
    assert (matrix[~inside] == 0).all()
    assert (matrix[inside] != 0).all()
    assert max(np.diff(p.rows)) - min(np.diff(p.rows)) <= 1
    assert max(np.diff(p.columns)) - min(np.diff(p.columns)) <= 1


def test_one_block_per_layer() -> None:
    matrix = dense(draw("layer"))
    rows = layered.layer_rows([15, 4, 8], 10)
    assert sum(rows) == 10
    r, c = np.cumsum([0, *rows]), np.cumsum([0, 15, 4, 8])
    inside = np.zeros((10, D), bool)
    for i in range(3):
        inside[r[i] : r[i + 1], c[i] : c[i + 1]] = True
    assert (matrix[~inside] == 0).all()
    assert (matrix[inside] != 0).all()


@pytest.mark.parametrize(
    ("sizes", "layers"),
    [
        ({"w": 12, "b": 3}, [[0, 1]]),
        ({"layer1": {"w": 8, "b": 2}, "layer2": {"w": 6, "b": 3}}, [[0, 1], [2, 3]]),
        ({"params": {"Dense_0": {"kernel": 8, "bias": 2}, "out": {"kernel": 6}}}, [[0, 1], [2]]),
        ({"0.weight": 6, "0.bias": 3, "12.weight": 9, "12.bias": 3}, [[0, 1], [2, 3]]),
        ({"w1": 6, "w2": 9, "b1": 3, "b2": 3}, [[0, 2], [1, 3]]),
        ([(6, 3), (9, 3)], [[0, 1], [2, 3]]),
        ([6, 3, 9], [[0], [1], [2]]),
    ],
    ids=["one layer", "ours", "flax", "torch", "flat", "pairs", "no names"],
)
def test_weights_and_bias_of_a_layer_share_a_block(sizes: Any, layers: list[list[int]]) -> None:
    like = Vector(jax.tree.map(jnp.zeros, sizes))
    p = projection.draw("layer", like, 6, jax.random.key(0))
    matrix = np.stack([p.back(row, like).flat() for row in jnp.eye(6)])
    cuts = np.cumsum([leaf.size for leaf in like.leaves])[:-1]
    seen = [set(np.flatnonzero(part.any(1))) for part in np.split(matrix, cuts, axis=1)]
    for inside in layers:
        assert all(seen[i] == seen[inside[0]] for i in inside)
    rows = [row for inside in layers for row in seen[inside[0]]]
    assert sorted(rows) == list(range(6)), "a row belongs to one layer"
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-5)
    x = np.random.default_rng(0).standard_normal(like.size).astype(np.float32)
    np.testing.assert_allclose(p(like.like(jnp.asarray(x))), matrix @ x, rtol=1e-5, atol=1e-6)


def test_the_layers_of_the_shipped_models() -> None:
    """A perceptron has two, not four; LeNet five, not ten."""
    count = lambda model, shape: (
        max(
            layered.layers_of(Vector(jax.eval_shape(model.build(shape, 3).init, jax.random.key(0))))
        )
        + 1
    )
    assert count(coterie.get_model("mlr"), (4,)) == 1
    assert count(coterie.get_model("mlp"), (4,)) == 2
    assert count(coterie.get_model("lenet"), (28, 28, 1)) == 5


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=8), share=st.floats(0, 1))
def test_layers_share_the_rows_in_proportion(sizes: list[int], share: float) -> None:
    dsub = len(sizes) + round(share * (sum(sizes) - len(sizes)))
    rows = layered.layer_rows(sizes, dsub)
    assert sum(rows) == dsub
    assert all(1 <= r <= s for r, s in zip(rows, sizes, strict=True))
    ideal = [dsub * s / sum(sizes) for s in sizes]
    # Nobody may be more than one row above its share unless the floor of one row put it there; what
    # small layers take, large ones give.
    assert all(r <= max(i + 1, 1) for r, i in zip(rows, ideal, strict=True))


@pytest.mark.parametrize("label", [k for k in KINDS if k != "identity"])
def test_the_seed_decides(label: str) -> None:
    np.testing.assert_array_equal(dense(draw(label, seed=1)), dense(draw(label, seed=1)))
    assert not np.allclose(dense(draw(label, seed=1)), dense(draw(label, seed=2)))


@pytest.mark.parametrize("regenerate", [False, True])
def test_many_blocks_and_few_are_computed_differently_but_alike(
    regenerate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = projection.draw("block", LIKE, 10, jax.random.key(0), blocks=4, regenerate=regenerate)
    x, v = (
        LIKE.like(jax.random.normal(jax.random.key(1), (D,))),
        jax.random.normal(jax.random.key(2), (10,)),
    )
    few = p(x), p.back(v, LIKE).flat()
    monkeypatch.setattr(projection, "UNROLLED", 0)
    for one, other in zip(few, (p(x), p.back(v, LIKE).flat()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dsub", [4, 10, 11])
def test_regenerated_blocks_are_the_stored_ones(dsub: int) -> None:
    np.testing.assert_allclose(
        dense(draw("blocks, regenerated", dsub)),
        dense(draw("blocks of unequal size", dsub)),
        rtol=1e-6,
    )
    kept, drawn = (
        jax.tree.leaves(draw(label, dsub))
        for label in ("blocks of unequal size", "blocks, regenerated")
    )
    assert sum(leaf.size for leaf in drawn) <= 2
    assert sum(leaf.size for leaf in kept) > 2


def test_rows_of_the_dense_kind_are_gaussian_directions() -> None:
    like = Vector({"w": jnp.zeros(400)})
    (matrix,) = projection.draw("dense", like, 200, jax.random.key(0)).parts
    scaled = np.asarray(matrix).reshape(-1) * np.sqrt(400)
    assert abs(scaled.mean()) < 0.02
    assert scaled.std() == pytest.approx(1, abs=0.01)
    gram = np.asarray(matrix @ matrix.T) - np.eye(200)
    assert gram.std() == pytest.approx(1 / np.sqrt(400), rel=0.05), (
        "i.i.d. directions have correlations of 1/√d"
    )


@pytest.mark.parametrize("dsub", [0, -1, D + 1])
@pytest.mark.parametrize("label", [k for k in KINDS if k != "identity"])
def test_a_subspace_larger_than_the_space_is_refused(label: str, dsub: int) -> None:
    with pytest.raises(
        InvalidInput, match=rf"dsub is {dsub}, but must be a whole number from 1 to d = {D}"
    ):
        draw(label, dsub)


def test_other_bad_shapes_are_refused(ragged: coterie.Federation) -> None:
    with pytest.raises(InvalidInput, match="one block per layer needs at least 3"):
        draw("layer", 2)
    with pytest.raises(InvalidInput, match="blocks is 11"):
        projection.draw("block", LIKE, 10, jax.random.key(0), blocks=11)
    with pytest.raises(InvalidInput, match="did you mean 'dense'"):
        projection.draw("dens", LIKE, 10, jax.random.key(0))
    for name in ("lp-proj", "graph-proj"):
        with pytest.raises(
            InvalidInput, match="dsub is 16, but must be a whole number from 1 to d = 15"
        ):
            coterie.simulate(coterie.get_method(name, {"dsub": 16}), ragged, rounds=1)


@pytest.mark.parametrize(("d", "dsub", "k"), [(1000, 40, 8), (1003, 41, 7), (500, 10, 10)])
def test_blocks_never_need_the_memory_of_the_whole_matrix(d: int, dsub: int, k: int) -> None:
    like = Vector({"w": jnp.zeros(d)})
    kept = projection.draw("block", like, dsub, jax.random.key(0), blocks=k)
    assert kept.numbers() <= k * -(-dsub // k) * -(-d // k)
    assert kept.numbers() == pytest.approx(dsub * d / k, rel=0.2)
    assert (
        projection.draw("block", like, dsub, jax.random.key(0), blocks=k, regenerate=True).numbers()
        <= 2
    )


@pytest.mark.parametrize("regenerate", [False, True])
def test_a_model_of_resnet_size_is_projected_within_seconds(regenerate: bool) -> None:
    """The Fashion-MNIST setting: d = 678,794, dsub = 600; a dense P would need 1.6 GB."""
    like = Vector({"w": jnp.zeros(678_794)})
    begun = time.perf_counter()
    p = projection.draw("block", like, 600, jax.random.key(0), blocks=50, regenerate=regenerate)
    x = Vector({"w": jnp.asarray(np.random.default_rng(0).standard_normal(678_794), jnp.float32)})
    v = p(x)
    returned = p.back(v, like)
    jax.block_until_ready(returned)
    assert (
        time.perf_counter() - begun < 20
    )  # about 1 s; a loaded machine gets time, a dense matrix would not fit it
    assert float(jnp.vdot(returned.flat(), x.flat())) == pytest.approx(
        float(jnp.vdot(v, v)), rel=1e-3
    )
    assert p.numbers() < 600 * 678_794 / 45
    # Rows of unit length in blocks: ‖Px‖² ≈ Σ over rows of (a unit Gaussian direction · x)² ≈ dsub.
    assert float(jnp.vdot(v, v)) == pytest.approx(600, rel=0.25)
