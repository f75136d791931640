"""P and Pᵀ as operators: how a model of d numbers is seen in a shared subspace of dsub numbers.

Both ends draw P from the same seed, so it is never sent. Rows have unit length; those of dense and
block-diagonal kinds are i.i.d. Gaussian directions.

| kind | memory (numbers) | time of Px |
|---|---|---|
| dense | 2·dsub·d | dsub·d |
| orthogonal (dense, rows orthonormal) | 2·dsub·d | dsub·d |
| block-diagonal with k blocks | dsub·d/k | dsub·d/k |
| the same, `regenerate` (one block in memory at a time) | dsub·d/k² | dsub·d/k and drawing it |
| one block per layer | Σ over layers of rows·size | the same |
| srht (a random sample of the rows of a Hadamard matrix) | d signs of one byte | d log d |
| identity | 0 | 0 |
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.core.errors import InvalidInput, unknown
from coterie.core.pytree import tree
from coterie.core.randomness import permute
from coterie.core.vector import Vector
from coterie.coupling import hadamard
from coterie.coupling.layered import layer_rows, layers_of

UNROLLED = 64
"""Up to so many blocks are written out one by one, which is faster on a CPU but takes time to
compile.
"""
KINDS = ("dense", "orthogonal", "block", "layer", "srht", "identity")


@dataclasses.dataclass(frozen=True)
class Projection:
    """A linear map P: R^d → R^dsub. `P(x)` projects a model, `P.back(v, like)` is Pᵀv in the shape
    of `like`.
    """

    kind: ClassVar[str]

    @property
    def dsub(self) -> int:
        raise NotImplementedError

    def __call__(self, x: Vector) -> Any:
        raise NotImplementedError

    def back(self, v: Any, like: Vector) -> Vector:
        raise NotImplementedError

    def numbers(self) -> int:
        """How many numbers are kept in memory for P."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self))


def _unit_rows(key: Any, rows: int, columns: int, dtype: Any) -> Any:
    p = jax.random.normal(key, (rows, columns), dtype)
    return p / jnp.linalg.norm(p, axis=1, keepdims=True)


@tree
@dataclasses.dataclass(frozen=True)
class IdentityProjection(Projection):
    """P = I: the message is the model itself."""

    d: int = dataclasses.field(metadata={"static": True})
    kind: ClassVar[str] = "identity"

    @property
    def dsub(self) -> int:
        return self.d

    def __call__(self, x: Vector) -> Any:
        return x.flat()

    def back(self, v: Any, like: Vector) -> Vector:
        return like.like(v)


@tree
@dataclasses.dataclass(frozen=True)
class Dense(Projection):
    """One matrix, kept as one slice of columns per layer so that a model need not be flattened in
    inner loops. `turned` has the same transposed: P x and Pᵀv of many clients are one product each,
    and neither needs a transposed copy.
    """

    parts: tuple[Any, ...]
    turned: tuple[Any, ...]
    kind: ClassVar[str] = "dense"

    @property
    def dsub(self) -> int:
        return int(self.parts[0].shape[0])

    def __call__(self, x: Vector) -> Any:
        return sum(leaf.reshape(-1) @ p for p, leaf in zip(self.turned, x.leaves, strict=True))

    def back(self, v: Any, like: Vector) -> Vector:
        leaves, structure = jax.tree.flatten(like.tree)
        out = [(v @ p).reshape(leaf.shape) for p, leaf in zip(self.parts, leaves, strict=True)]
        return Vector(jax.tree.unflatten(structure, out))

    @classmethod
    def split(cls, matrix: Any, sizes: list[int]) -> Dense:
        cuts = np.cumsum([0, *sizes])
        parts = tuple(matrix[:, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True))
        return cls(parts, tuple(part.T for part in parts))


@tree
@dataclasses.dataclass(frozen=True)
class Blocks(Projection):
    """Block-diagonal with k blocks over the flattened model; block i maps columns [cᵢ, cᵢ₊₁) to
    rows [rᵢ, rᵢ₊₁).

    `source` holds the k blocks padded to one shape, or, with `regenerate`, only the key: blocks are
    then drawn again one by one.
    """

    source: Any
    rows: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    columns: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    regenerate: bool = dataclasses.field(default=False, metadata={"static": True})
    kind: ClassVar[str] = "block"

    @property
    def dsub(self) -> int:
        return self.rows[-1]

    @property
    def _shape(self) -> tuple[int, int, int]:
        return len(self.rows) - 1, int(max(np.diff(self.rows))), int(max(np.diff(self.columns)))

    # Blocks are neighbouring ranges: a few of them are sliced and joined, many are looked up.

    @staticmethod
    def _gather(flat: Any, bounds: tuple[int, ...], width: int) -> Any:
        """The ranges of a vector as rows, padded with zeros to one width."""
        if len(bounds) - 1 <= UNROLLED:
            ranges = zip(bounds[:-1], bounds[1:], strict=True)
            return jnp.concatenate(
                [jnp.pad(flat[a:b], (0, width - (b - a))) for a, b in ranges]
            ).reshape(-1, width)
        # No table of places: of a large model it would be as large as the model.
        longer = jnp.pad(flat, (0, width))
        begins = jnp.asarray(np.asarray(bounds[:-1], np.int32))
        taken = jax.vmap(lambda a: lax.dynamic_slice_in_dim(longer, a, width))(begins)
        return jnp.where(np.arange(width) < np.diff(bounds)[:, None], taken, 0)

    @staticmethod
    def _scatter(blocks: Any, bounds: tuple[int, ...]) -> Any:
        """The inverse of `_gather`."""
        if len(bounds) - 1 <= UNROLLED:
            return jnp.concatenate([blocks[i, :count] for i, count in enumerate(np.diff(bounds))])
        begins = jnp.asarray(np.asarray(bounds[:-1], np.int32))
        # What pads a block is overwritten by the next one.
        lay = lambda i, out: lax.dynamic_update_slice_in_dim(out, blocks[i], begins[i], 0)
        room = jnp.zeros(bounds[-1] + blocks.shape[1], blocks.dtype)
        return lax.fori_loop(0, len(begins), lay, room)[: bounds[-1]]

    @staticmethod
    def draw(key: Any, i: Any, rows: Any, columns: Any, height: int, width: int, dtype: Any) -> Any:
        """Block i with unit rows, padded with zeros to height×width."""
        block = jax.random.normal(jax.random.fold_in(key, i), (height, width), dtype)
        block = jnp.where(
            (jnp.arange(height)[:, None] < rows) & (jnp.arange(width) < columns), block, 0
        )
        return block / jnp.maximum(jnp.linalg.norm(block, axis=1, keepdims=True), 1e-30)

    def _each(self, inputs: Any, transposed: bool) -> Any:
        """Every block times its input: (k, width) → (k, height), or back."""
        k, height, width = self._shape
        if not self.regenerate and k <= UNROLLED:  # over many clients each is one large product
            return jnp.stack(
                [
                    v @ block if transposed else block @ v
                    for block, v in zip(self.source, inputs, strict=True)
                ]
            )
        if not self.regenerate:
            return jnp.einsum("khw,kh->kw" if transposed else "khw,kw->kh", self.source, inputs)
        facts = (
            jnp.arange(k),
            jnp.asarray(np.diff(self.rows)),
            jnp.asarray(np.diff(self.columns)),
            inputs,
        )

        def one(carry: None, fact: Any) -> tuple[None, Any]:
            i, rows, columns, v = fact
            block = self.draw(self.source, i, rows, columns, height, width, inputs.dtype)
            return carry, (v @ block if transposed else block @ v)

        return lax.scan(one, None, facts)[1]

    def __call__(self, x: Vector) -> Any:
        out = self._each(self._gather(x.flat(), self.columns, self._shape[2]), transposed=False)
        return self._scatter(out, self.rows)

    def back(self, v: Any, like: Vector) -> Vector:
        out = self._each(self._gather(v, self.rows, self._shape[1]), transposed=True)
        return like.like(self._scatter(out, self.columns))


@tree
@dataclasses.dataclass(frozen=True)
class PerLayer(Projection):
    """One dense block per layer; a layer gets rows in proportion to its size, at least one.

    `parts` has a slice of columns for every array of the model, `layers` the number of the layer
    that the array belongs to: its weights and its bias share a block.
    """

    parts: tuple[Any, ...]
    layers: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    kind: ClassVar[str] = "layer"

    @property
    def _rows(self) -> list[int]:
        """Rows of every layer."""
        rows = {layer: int(p.shape[0]) for p, layer in zip(self.parts, self.layers, strict=True)}
        return [rows[i] for i in range(len(rows))]

    @property
    def dsub(self) -> int:
        return sum(self._rows)

    def __call__(self, x: Vector) -> Any:
        seen: list[Any] = [0] * len(self._rows)
        for p, layer, leaf in zip(self.parts, self.layers, x.leaves, strict=True):
            seen[layer] += p @ leaf.reshape(-1)
        return jnp.concatenate(seen)

    def back(self, v: Any, like: Vector) -> Vector:
        leaves, structure = jax.tree.flatten(like.tree)
        cuts = np.cumsum([0, *self._rows])
        out = [
            (v[cuts[i] : cuts[i + 1]] @ p).reshape(leaf.shape)
            for p, i, leaf in zip(self.parts, self.layers, leaves, strict=True)
        ]
        return Vector(jax.tree.unflatten(structure, out))


@tree
@dataclasses.dataclass(frozen=True)
class Srht(Projection):
    """The subsampled randomised Hadamard transform (Ailon and Chazelle 2009; Tropp 2011):
    P = S H D / √d.

    D gives every number of the model a random sign, H is a Hadamard matrix of an order n ≥ d that
    sees it lengthened by zeros, and S picks dsub of its n rows. All entries of P are ±1/√d, so rows
    have unit length; where n = d they are orthonormal, and ‖P‖² ≤ n/d always.
    """

    signs: Any
    rows: Any
    kind: ClassVar[str] = "srht"

    @property
    def dsub(self) -> int:
        return int(self.rows.shape[-1])

    def __call__(self, x: Vector) -> Any:
        d = x.size

        def one(signs: Any, rows: Any, flat: Any) -> Any:
            spread = jnp.pad(flat * signs, (0, hadamard.order(d) - d))
            return hadamard.times(spread)[rows] / math.sqrt(d)

        return hadamard.one_at_a_time(one)(self.signs, self.rows, x.flat())

    def back(self, v: Any, like: Vector) -> Vector:
        d = like.size

        def one(signs: Any, rows: Any, v: Any) -> Any:
            spread = jnp.zeros(hadamard.order(d), v.dtype).at[rows].set(v / math.sqrt(d))
            return hadamard.times(spread, transposed=True)[:d] * signs

        return like.like(hadamard.one_at_a_time(one)(self.signs, self.rows, v))

    @classmethod
    def draw(cls, d: int, dsub: int, key: Any) -> Srht:
        signing, picking = jax.random.split(key)
        signs = jax.random.rademacher(signing, (d,), jnp.int8)
        return cls(signs, permute(picking, jnp.arange(dsub), hadamard.order(d)))


def _draw_layers(
    layers: tuple[int, ...], sizes: list[int], dsub: int, key: Any, dtype: Any
) -> PerLayer:
    count = max(layers) + 1
    if dsub < count:
        raise InvalidInput(
            f"dsub is {dsub}, but one block per layer needs at least {count}, one row for each"
            " layer."
        )
    members = [[i for i, layer in enumerate(layers) if layer == n] for n in range(count)]
    totals = [sum(sizes[i] for i in inside) for inside in members]
    parts: dict[int, Any] = {}
    for n, rows in enumerate(layer_rows(totals, dsub)):
        block = Dense.split(
            _unit_rows(jax.random.fold_in(key, n), rows, totals[n], dtype),
            [sizes[i] for i in members[n]],
        )
        parts |= dict(zip(members[n], block.parts, strict=True))
    return PerLayer(tuple(parts[i] for i in range(len(sizes))), layers)


def draw(
    kind: str, like: Vector, dsub: int, key: Any, *, blocks: int = 1, regenerate: bool = False
) -> Projection:
    """P for models shaped as `like`, from a key that both ends know."""
    d, dtype = like.size, like.dtype
    sizes = [math.prod(leaf.shape) for leaf in like.leaves]
    if kind == "identity":
        return IdentityProjection(d)
    if not 1 <= dsub <= d:
        raise InvalidInput(
            f"dsub is {dsub}, but must be a whole number from 1 to d = {d}, the number of"
            " parameters of the model."
        )
    if kind == "dense":
        return Dense.split(_unit_rows(key, dsub, d, dtype), sizes)
    if kind == "orthogonal":
        q, r = jnp.linalg.qr(jax.random.normal(key, (d, dsub), dtype))
        return Dense.split((q * jnp.sign(jnp.diagonal(r))).T, sizes)
    if kind == "block":
        if not 1 <= blocks <= dsub:
            raise InvalidInput(
                f"blocks is {blocks}, but must be a whole number from 1 to dsub = {dsub}."
            )
        rows = tuple(int(r) for r in np.linspace(0, dsub, blocks + 1).round())
        columns = tuple(int(c) for c in np.linspace(0, d, blocks + 1).round())
        if regenerate:
            return Blocks(key, rows, columns, regenerate=True)
        height, width = int(max(np.diff(rows))), int(max(np.diff(columns)))
        many = lax.map(
            lambda f: Blocks.draw(key, f[0], f[1], f[2], height, width, dtype),
            (jnp.arange(blocks), jnp.asarray(np.diff(rows)), jnp.asarray(np.diff(columns))),
        )
        return Blocks(many, rows, columns)
    if kind == "layer":
        return _draw_layers(layers_of(like), sizes, dsub, key, dtype)
    if kind == "srht":
        return Srht.draw(d, dsub, key)
    raise unknown("the kind of projection", kind, KINDS)
