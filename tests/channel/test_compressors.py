"""What holds for every compressor: bytes are as billed, what is encoded is decoded to the bit, and
both ends make the same of it.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.channel import dgc, lbgm, plain, quantised, sketch, sparse, subspace
from coterie.channel.base import CHANNELS, get_channel
from coterie.channel.values import KINDS, LARGEST_CODE, Coded, blank
from coterie.core.errors import InvalidInput

MODULES = (dgc, lbgm, plain, quantised, sketch, sparse, subspace)
D, CLIENTS = 37, 3

CASES: list[tuple[str, dict[str, Any]]] = [
    *(("plain", {"values": kind}) for kind in KINDS),
    ("top-k", {"share": 0.2, "indices": "raw"}),
    ("top-k", {"share": 0.2, "indices": "packed", "values": "int4"}),
    ("top-k", {"share": 0.3, "values": "sign"}),
    ("top-k", {"share": 1.0, "values": "int8"}),
    ("delta", {"share": 0.1, "pick": "cyclic", "values": "int4"}),
    ("delta", {"k": 5, "pick": "cyclic", "values": "full"}),
    ("delta", {"share": 0.1}),
    ("random-k", {"k": 9, "values": "int4"}),
    ("random-k", {"share": 0.2, "scaled": True, "memory": "none"}),
    ("qsgd", {"bucket": 16, "levels": 4}),
    ("qsgd", {"bucket": 64, "levels": 1}),
    ("dgc", {"share": 0.05, "values": "int4"}),
    ("dgc", {"share": 0.1, "warmup": 0, "clip": 0.5, "indices": "packed"}),
    ("lbgm", {}),
    ("lbgm", {"values": "int8", "threshold": 0.9}),
    ("sketch", {"columns": 0.2, "rows": 4, "share": 0.1, "exact": False, "memory": "none"}),
    ("sketch", {"columns": 0.2, "share": 0.1, "values": "int8"}),
    ("subspace", {"share": 0.2}),
]
ONE_EACH = [("plain", {"values": "int8"}), *dict(CASES[5:]).items()]


def same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for p, q in zip(
        map(np.asarray, jax.tree.leaves(a)), map(np.asarray, jax.tree.leaves(b)), strict=True
    ):
        assert (p.dtype, p.shape, p.tobytes()) == (q.dtype, q.shape, q.tobytes())


@functools.cache
def program(name: str, options: tuple[tuple[str, Any], ...], dtype: Any = np.float32) -> Any:
    """A round of CLIENTS messages: payloads, private and shared states, what arrived, and sizes."""
    made = get_channel(name, dict(options))

    def one(x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any) -> Any:
        payload, private = made.compress(x, base, private, shared, key, t)
        arrived, after = made.expand(payload, base, shared, key, t)
        return payload, private, after, arrived, jnp.asarray(made.size(payload, D), jnp.int32)

    many = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, 0, 0, None)))
    states = jax.tree.map(
        lambda s: np.zeros((CLIENTS, *s.shape), s.dtype),
        (made.private_init(D, dtype), made.shared_init(D, dtype)),
    )
    return made, many, jax.jit(made.expand), states


def messages(seed: int, scale: float, zeros: float, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((CLIENTS, D))
    x = base + scale * rng.standard_normal((CLIENTS, D)) * (rng.random((CLIENTS, D)) >= zeros)
    return x.astype(dtype), base.astype(dtype)


def follow(
    name: str, options: dict[str, Any], dtype: Any, rounds: list[tuple[int, float, float]]
) -> None:
    """Some rounds, each message over the wire to a receiver that works on its own."""
    made, many, expand, (private, shared) = program(name, tuple(options.items()), dtype)
    theirs = shared
    for t, (seed, scale, zeros) in enumerate(rounds):
        x, base = messages(seed, scale, zeros, dtype)
        keys = jax.random.split(jax.random.key(seed), CLIENTS)
        payload, private, shared, arrived, size = many(x, base, private, shared, keys, t)
        payload, arrived = jax.tree.map(np.asarray, (payload, arrived))
        assert arrived.dtype == dtype
        got = []
        for i in range(CLIENTS):
            mine = jax.tree.map(lambda leaf, i=i: leaf[i], payload)
            wire = made.encode(mine, D, np.dtype(dtype))
            assert len(wire) == int(size[i])
            got.append(made.decode(wire, D, np.dtype(dtype)))
            same(mine, got[-1])
        seen = [
            expand(got[i], base[i], jax.tree.map(lambda leaf, i=i: leaf[i], theirs), keys[i], t)
            for i in range(CLIENTS)
        ]
        assert np.stack([np.asarray(s[0]) for s in seen]).tobytes() == arrived.tobytes()
        theirs = jax.tree.map(
            lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *(s[1] for s in seen)
        )
        same(jax.tree.map(np.asarray, shared), theirs)
        if made.lossless:
            assert arrived.tobytes() == x.tobytes()


def test_every_registered_compressor_is_tried() -> None:
    assert all(module.__name__.startswith("coterie.channel.") for module in MODULES)
    assert set(CHANNELS) == {name for name, _ in CASES} == {name for name, _ in ONE_EACH}
    assert all(CHANNELS[name].summary.endswith(".") for name in CHANNELS)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_both_ends_of_a_wire_agree(name: str, options: dict[str, Any]) -> None:
    """Compiled and mapped over clients on one side, one message at a time on the other."""
    follow(
        name,
        options,
        np.float32,
        [(1, 1.0, 0.0), (2, 1e-4, 0.0), (2, 1e-4, 0.9), (4, 1e5, 0.0), (5, 1.0, 1.0)],
    )


@pytest.mark.parametrize(("name", "options"), ONE_EACH)
def test_float64(name: str, options: dict[str, Any]) -> None:
    with jax.enable_x64(True):
        follow(name, options, np.float64, [(1, 1.0, 0.0), (2, 1e-4, 0.5)])


@pytest.mark.parametrize(("name", "options"), [c for c in ONE_EACH if c[0] != "delta"])
def test_a_message_of_one_number(name: str, options: dict[str, Any]) -> None:
    made = get_channel(name, options)
    private, shared = made.private_init(1, jnp.float32), made.shared_init(1, jnp.float32)

    @jax.jit
    def send(x: Any, base: Any, key: Any) -> Any:
        payload, _ = made.compress(x, base, private, shared, key, 0)
        return payload, made.size(payload, 1), made.expand(payload, base, shared, key, 0)[0]

    payload, size, arrived = send(jnp.ones(1), jnp.zeros(1), jax.random.key(0))
    wire = made.encode(payload, 1, np.float32)
    assert len(wire) == int(size)
    same(made.decode(wire, 1, np.float32), jax.tree.map(np.asarray, payload))
    assert float(arrived[0]) == pytest.approx(getattr(made, "clip", None) or 1.0, rel=0.01)


# -- the wire alone, for any length ----------------------------------------------------------------


def coded(rng: np.random.Generator, kind: str, n: int, real: int, dtype: Any) -> Coded:
    like = blank(kind, n, dtype)
    span = LARGEST_CODE.get(kind, 1)
    codes = (
        rng.standard_normal(n) if kind in ("full", "float16") else rng.integers(-span, span + 1, n)
    )
    if kind == "sign":
        codes = codes > 0
    codes = np.where(np.arange(n) < real, codes, 0).astype(like.codes.dtype)
    return Coded(
        codes,
        () if isinstance(like.scale, tuple) else np.asarray(rng.random()).astype(like.scale.dtype),
    )


def places(rng: np.random.Generator, d: int, k: int, clustered: bool) -> Any:
    chosen = np.arange(d - k, d) if clustered else rng.choice(d, k, replace=False)
    return np.sort(chosen).astype(np.int32)


def payload_of(made: Any, rng: np.random.Generator, d: int, dtype: Any, clustered: bool) -> Any:
    """A payload as the compressor could make it."""
    if isinstance(made, quantised.QSGD):
        levels = rng.integers(-made.levels, made.levels + 1, d) * (rng.random(d) < rng.random())
        steps = rng.random(-(-d // made.bucket)).astype(np.float32).view(np.uint32) & ~np.uint32(
            (1 << made.levels.bit_length()) - 1
        )
        return quantised.Levels(steps.view(np.float32), levels.astype(made._type))
    if isinstance(made, dgc.DGC):
        counts = made.counts(d)
        stage = int(rng.integers(0, len(counts)))
        k, most = counts[stage], max(counts)
        padded = np.concatenate([places(rng, d, k, clustered), np.full(most - k, d, np.int32)])
        return dgc.Staged(np.int32(stage), padded, coded(rng, made.values, most, k, dtype))
    if isinstance(made, lbgm.LBGM):
        if clustered:
            return lbgm.Multiple(
                np.bool_(False),
                np.asarray(rng.standard_normal(), dtype),
                blank(made.values, d, dtype),
            )
        return lbgm.Multiple(
            np.bool_(True), np.zeros((), dtype), coded(rng, made.values, d, d, dtype)
        )
    if isinstance(made, plain.Plain):
        return coded(rng, made.values, d, d, dtype)
    k = made.count(d)
    if isinstance(made, sketch.CountSketch):
        cells = made.rows * made.width(d)
        return sketch.Sketched(
            coded(rng, made.values, cells, cells, dtype),
            coded(rng, made.values, k, k, dtype) if made.exact else (),
        )
    values = coded(rng, made.values, k, k, dtype)
    if isinstance(made, sparse.TopK):
        told = k < d and getattr(made, "pick", "largest") == "largest"
        return sparse.Picked(places(rng, d, k, clustered) if told else (), values)
    return values


def any_options(name: str) -> st.SearchStrategy[dict[str, Any]]:
    shares = st.sampled_from([0.01, 0.1, 0.5, 1.0])
    kinds = st.sampled_from(KINDS)
    indices = st.sampled_from(["raw", "packed", "gaps"])
    known: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "plain": {"values": kinds},
        "lbgm": {"values": kinds},
        "qsgd": {
            "bucket": st.sampled_from([1, 7, 512]),
            "levels": st.sampled_from([1, 4, 127, 128, 32767]),
        },
        "dgc": {
            "share": shares,
            "values": kinds,
            "indices": indices,
            "warmup": st.sampled_from([0, 1, 5]),
        },
        "sketch": {
            "rows": st.integers(1, 4),
            "columns": shares,
            "values": kinds,
            "exact": st.booleans(),
            "memory": st.just("none"),
        },
        "random-k": {"share": shares, "values": kinds},
        "subspace": {"k": st.integers(1, 400), "values": kinds},
        "delta": {
            "share": shares,
            "values": kinds,
            "indices": indices,
            "pick": st.sampled_from(["largest", "cyclic"]),
        },
    }
    return st.fixed_dictionaries(
        known.get(name, {"share": shares, "values": kinds, "indices": indices})
    )


@pytest.mark.parametrize("name", sorted(CHANNELS))
@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    d=st.integers(1, 300),
    seed=st.integers(0, 10**6),
    wide=st.booleans(),
    clustered=st.booleans(),
)
def test_bytes_are_as_billed_and_read_back(
    name: str, data: st.DataObject, d: int, seed: int, wide: bool, clustered: bool
) -> None:
    made = get_channel(name, data.draw(any_options(name)))
    if name == "qsgd":
        d = min((1, 2, 30, 300), key=lambda known: abs(known - d))  # one program each
    dtype = np.dtype(np.float64 if wide else np.float32)
    payload = payload_of(made, np.random.default_rng(seed), d, dtype, clustered)
    wire = made.encode(payload, d, dtype)
    assert len(wire) == int(made.size(payload, d))
    same(made.decode(wire, d, dtype), payload)


@pytest.mark.parametrize("name", sorted(CHANNELS))
@settings(max_examples=60, deadline=None)
@given(data=st.data(), d=st.integers(1, 300), seed=st.integers(0, 10**6), clustered=st.booleans())
def test_bytes_that_nobody_encoded_are_refused(
    name: str, data: st.DataObject, d: int, seed: int, clustered: bool
) -> None:
    """Whatever is changed on the wire: either it is refused, or it is exactly what some other
    payload is encoded as.
    """
    made = get_channel(name, data.draw(any_options(name)))
    dtype = np.dtype(np.float32)
    wire = made.encode(payload_of(made, np.random.default_rng(seed), d, dtype, clustered), d, dtype)
    with pytest.raises(InvalidInput, match=r"\.$"):
        made.decode(wire[:-1], d, dtype)
    with pytest.raises(InvalidInput, match=r"\.$"):
        made.decode(wire + b"\0", d, dtype)
    with pytest.raises(InvalidInput, match=r"\.$"):
        made.decode(b"", d, dtype)
    bent = bytearray(wire)
    for _ in range(data.draw(st.integers(1, 3))):
        bent[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        seen = made.decode(bytes(bent), d, dtype)
    except InvalidInput:
        return
    assert made.encode(seen, d, dtype) == bytes(bent)


@pytest.mark.parametrize("how", ["raw", "packed", "gaps"])
@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ([0, 5], "coordinate 5"),
        ([0, 7], "coordinate 7"),
        ([3, 3], "increase"),
        ([4, 1], "increase"),
    ],
)
def test_coordinates_out_of_range_or_order_are_refused(
    how: str, chosen: list[int], why: str
) -> None:
    """5 coordinates, of which 2 are sent: with 3 bits each, numbers up to 7 can be written."""
    made = get_channel("top-k", {"k": 2, "indices": how, "values": "int8"})
    payload = sparse.Picked(
        np.asarray(chosen, np.int32),
        Coded(np.zeros(2, np.int8), np.zeros((), blank("int8", 1, np.float32).scale.dtype)),
    )
    with pytest.raises(
        InvalidInput, match=why if how != "gaps" or why != "increase" else "-1|-4"
    ):  # negative gaps have no code at all
        made.decode(made.encode(payload, 5, np.float32), 5, np.float32)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("dgc", {"memory": "errors"}, "dgc.memory"),
        ("dgc", {"memory": "copies"}, "dgc.memory"),
        ("lbgm", {"memory": "errors"}, "lbgm.memory"),
        ("lbgm", {"memory": "copies"}, "lbgm.memory"),
        ("random-k", {"scaled": True}, "random-k.scaled"),
        ("qsgd", {"memory": "errors", "bucket": 512, "levels": 16}, "qsgd.memory"),
        ("top-k", {"share": 0.0}, "share"),
        ("top-k", {"values": "int7"}, "int8"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(
    name: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        get_channel(name, options)


def test_options_that_make_sense_together_are_not_refused() -> None:
    assert get_channel("qsgd", {"memory": "errors", "bucket": 64, "levels": 16}).memory == "errors"
    assert get_channel("delta", {"memory": "copies"}).memory == "copies"
    assert get_channel("delta").down


@pytest.mark.parametrize("pattern", [0x7F81, 0xFF81, 0x7FC0, 0x7F80, 0x8000])
def test_no_scale_but_a_finite_positive_one_is_taken(pattern: int) -> None:
    """Signalling and quiet NaNs, infinity, minus zero: refused in a sentence, without a warning."""
    with pytest.raises(InvalidInput, match="a scale must be finite and not negative"):
        get_channel("plain", {"values": "int8"}).decode(
            pattern.to_bytes(2, "little") + bytes(5), 5, np.dtype(np.float32)
        )
    if pattern != 0x8000:
        with pytest.raises(InvalidInput, match="not finite"):
            get_channel("plain", {"values": "float16"}).decode(
                (pattern & 0x7D01 | 0x7C00).to_bytes(2, "little"), 1, np.dtype(np.float32)
            )
