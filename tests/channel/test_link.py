"""Both ends of a link over a real wire: in step, out of step, and back in step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import InvalidInput
from coterie.channel import CHANNELS, PLAIN, Channel, get_channel
from coterie.channel.ends import OutOfStep, Receiver, Sender
from coterie.channel.link import (
    HEADER,
    LinkKind,
    Outgoing,
    graph_up,
    open_link,
    star_up,
    transmit,
)

START = {"b": jnp.zeros(3), "w": jnp.arange(12.0).reshape(3, 4)}
OVER_COPIES = LinkKind(copies=True)
SMALL = {
    "top-k": {"k": 2},
    "random-k": {"k": 2},
    "delta": {"k": 2},
    "sketch": {"k": 2, "rows": 3},
    "subspace": {"k": 3},
    "dgc": {"k": 2},
}


compiled = jax.jit(transmit, static_argnums=(0,))


def channel(name: str) -> Channel:
    return get_channel(name, SMALL.get(name, {}))


def messages(count: int) -> list[Any]:
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.standard_normal((count, 15)), axis=0).astype(np.float32)
    return [{"b": jnp.asarray(row[:3]), "w": jnp.asarray(row[3:].reshape(3, 4))} for row in walk]


def key(t: int) -> Any:
    return jax.random.fold_in(jax.random.key(0), t)


def same(a: Any, b: Any) -> bool:
    return all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("exchange", ["star", "graph"])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_wire_gives_what_a_compiled_round_gives(name: str, exchange: str) -> None:
    c = channel(name)
    kind = star_up(c) if exchange == "star" else graph_up(c)
    reference = jax.tree.map(lambda leaf: leaf + 0.5, START) if exchange == "star" else None
    first = jax.tree.map(jnp.zeros_like, START) if kind.moving else START
    sender, receiver, link = (
        Sender(kind, c, first),
        Receiver(kind, c, first),
        open_link(kind, c, first),
    )
    for t, message in enumerate(messages(4)):
        out = Outgoing(message, reference, key(t), t)
        wire, arrived = sender.send(out)
        got = receiver.receive(wire, out)
        sent = compiled(kind, c, link, out)
        link = sent.link
        assert len(wire) == int(sent.bytes)
        assert same(got, sent.arrived)
        assert same(arrived, got)
        if link != ():
            assert same(sender.link, link)
            assert same(receiver.public, link.public)


def test_copies_of_everything_are_the_message_bit_for_bit() -> None:
    c = PLAIN.replace(memory="copies")
    for kind in (OVER_COPIES, LinkKind(copies=True, moving=True)):
        link = open_link(kind, c, START)
        for t, message in enumerate(messages(3)):
            reference = jax.tree.map(lambda leaf: leaf * 0.3 + 1, START)
            sent = transmit(kind, c, link, Outgoing(message, reference, key(t), t))
            link = sent.link
            assert same(sent.arrived, message)
            assert sent.bytes == 60 + HEADER


def test_what_is_cut_off_is_sent_later() -> None:
    """A message that stands still arrives completely after d/k rounds of the delta channel; and
    error feedback delivers every coordinate too.
    """
    target = messages(1)[0]
    c = get_channel("delta", {"k": 3, "values": "full"})
    link = open_link(OVER_COPIES, c, START)
    for t in range(5):
        sent = transmit(OVER_COPIES, c, link, Outgoing(target, key=key(t), t=t))
        link = sent.link
        assert same(sent.arrived, target) == (t == 4)


def told(t: int, message: Any = None) -> Outgoing:
    return Outgoing(message, key=key(t), t=t)


def pair(name: str = "delta") -> tuple[Sender, Receiver]:
    return Sender(OVER_COPIES, channel(name), START), Receiver(OVER_COPIES, channel(name), START)


def test_a_repeated_message_is_told_and_changes_nothing() -> None:
    sender, receiver = pair()
    wires = [sender.send(told(t, m))[0] for t, m in enumerate(messages(3))]
    receiver.receive(wires[0], told(0))
    before = receiver.public
    with pytest.raises(OutOfStep, match="message 1 came twice") as caught:
        receiver.receive(wires[0], told(0))
    assert caught.value.repeated
    assert same(receiver.public, before)
    receiver.receive(wires[1], told(1))
    receiver.receive(wires[2], told(2))
    assert same(receiver.public, sender.link.public)


def test_a_lost_message_is_told_and_a_whole_copy_mends_it() -> None:
    sender, receiver = pair()
    walk = messages(6)
    wires = [sender.send(told(t, m))[0] for t, m in enumerate(walk[:3])]
    receiver.receive(wires[0], told(0))
    before = receiver.public
    with pytest.raises(
        OutOfStep, match="message 3 came after message 1: one or more in between were lost"
    ) as caught:
        receiver.receive(wires[2], told(2))
    assert not caught.value.repeated
    assert same(receiver.public, before)
    whole = sender.resend()
    assert len(whole) == HEADER + 60
    arrived = receiver.receive(whole, told(3))
    assert same(receiver.public, sender.link.public)
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(arrived)]),
        sender.link.public.copy,
    )
    for t in range(3, 6):
        receiver.receive(sender.send(told(t, walk[t]))[0], told(t))
        assert same(receiver.public, sender.link.public)


@settings(max_examples=30, deadline=None)
@given(
    fates=st.lists(
        st.sampled_from(["arrives", "lost", "twice", "late", "cut", "garbage"]),
        min_size=1,
        max_size=12,
    ),
    name=st.sampled_from(["delta", "qsgd"]),
)
def test_whatever_happens_to_messages_the_ends_never_drift(fates: list[str], name: str) -> None:
    """After every message either both ends agree, or the receiver knows that they do not and a
    whole copy brings them together.
    """
    sender, receiver = pair(name)
    walk, late = messages(len(fates)), None
    for t, (fate, message) in enumerate(zip(fates, walk, strict=True)):
        wire = sender.send(told(t, message))[0]
        bad = False
        for arriving in {
            "arrives": [wire],
            "lost": [],
            "twice": [wire, wire],
            "late": [late] if late else [],
            "cut": [wire[:-1]],
            "garbage": [b"\xff"],
        }[fate]:
            before = receiver.public
            try:
                receiver.receive(arriving, told(t))
            except OutOfStep as trouble:
                bad = bad or not trouble.repeated
                assert same(receiver.public, before)
            except InvalidInput:
                bad = True
                assert same(receiver.public, before)
        late = wire
        in_step = int(receiver.public.version) == int(sender.link.public.version)
        if in_step:
            assert same(receiver.public, sender.link.public)
        else:
            assert bad or fate in (
                "lost",
                "late",
            ), "the receiver does not know that something is missing"
            receiver.receive(sender.resend(), told(t))
            assert same(receiver.public, sender.link.public)


def test_versions_go_round() -> None:
    sender, receiver = pair()
    for end in (sender, receiver):
        public = (sender.link.public if end is sender else receiver.public)._replace(
            version=jnp.int32((1 << 15) - 1)
        )
        if end is sender:
            sender.link = sender.link._replace(public=public)
        else:
            receiver.public = public
    receiver.receive(sender.send(told(0, messages(1)[0]))[0], told(0))
    assert int(receiver.public.version) == 0
