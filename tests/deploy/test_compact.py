"""Messages as bytes: nothing is lost, little is added, and nonsense is rejected."""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput
from coterie.deploy import compact, messages
from coterie.deploy.messages import Ahead, Refusal, Rejected, Reply, Request

PLAN = "0123456789abcdef" * 2
frames = st.lists(st.binary(max_size=300), max_size=4).map(tuple)
rounds = st.integers(-1, 1 << 40)
scales = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
requests = st.builds(
    Request,
    *(st.just(PLAN), st.sampled_from(compact.KINDS), st.integers(0, 1 << 40), st.booleans()),
    first=rounds,
    whole=st.booleans(),
    seen=rounds,
    worked=rounds,
    again=st.integers(0, 1 << 40),
    scale=scales,
    frames=frames,
)
replies = st.builds(
    Reply,
    *(st.just(PLAN), st.integers(-(1 << 40), 1 << 40), st.integers(1, 1 << 40)),
    gradients=st.integers(0, 1 << 40),
    lost=st.booleans(),
    newcomer=st.booleans(),
    scores=st.sampled_from([{}, {"test/personal": 0.25, "test-loss/personal": 1e-9}]),
    frames=frames,
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(requests, replies))
def test_what_is_said_arrives(message: Any) -> None:
    payload = compact.coded(message)
    assert compact.is_compact(payload)
    found = compact.decoded(type(message), payload)
    assert dataclasses.replace(found, plan=PLAN) == message
    messages.check_plan(PLAN, found.plan)


def test_another_plan_is_noticed() -> None:
    found = compact.decoded(Reply, compact.coded(Reply("fedc" + PLAN[4:], 0, 1)))
    with pytest.raises(Rejected, match="another plan"):
        messages.check_plan(PLAN, found.plan)


def test_envelopes_are_small() -> None:
    """Of a round in the middle of a run: what bench/wire.py measures."""
    scale = struct.unpack("<f", struct.pack("<f", 0.3))[0]
    request = Request(PLAN, "work", 5000, first=4999, seen=4999, worked=4999, scale=scale)
    request = dataclasses.replace(request, frames=(bytes(43),))
    assert len(compact.coded(request)) - 43 == 22
    assert len(compact.coded(Reply(PLAN, 5000, 600, 100, frames=(bytes(43),)))) - 43 == 18


@settings(max_examples=300, deadline=None)
@given(st.one_of(requests, replies), st.data())
def test_what_is_garbled_is_rejected_or_another_message(message: Any, data: Any) -> None:
    payload, kind = bytearray(compact.coded(message)), type(message)
    at = data.draw(st.integers(0, len(payload) - 1))
    if data.draw(st.booleans()):
        payload[at] = data.draw(st.integers(0, 255))
    else:
        payload = payload[:at]
    if not compact.is_compact(bytes(payload)):
        return
    try:
        found = compact.decoded(kind, bytes(payload))
    except (Rejected, Refusal):
        return
    assert compact.coded(found) == bytes(payload)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([Request, Reply]), st.binary(max_size=60))
def test_nonsense_is_rejected(kind: Any, rest: bytes) -> None:
    payload = bytes([messages.WIRE]) + rest
    if compact.is_compact(payload):
        try:
            compact.decoded(kind, payload)
        except (Rejected, Refusal):
            return


@pytest.mark.parametrize("wire", [0, 2, 4, 255])
def test_other_versions_of_this_form_are_rejected(wire: int) -> None:
    payload = bytes([wire]) + compact.coded(Reply(PLAN, 0, 1))[1:]
    with pytest.raises(Rejected, match=f"version {wire} of the protocol"):
        compact.decoded(Reply, payload)


def test_more_frames_than_allowed_are_rejected() -> None:
    payload = compact.coded(Reply(PLAN, 0, 1, frames=(b"a", b"b")))
    with pytest.raises(Rejected, match="2 parts, but must have at most 1"):
        compact.decoded(Reply, payload, 1)


def test_refusals_say_why_without_folders() -> None:
    with pytest.raises(Refusal, match="…/state cannot be written") as told:
        compact.decoded(Reply, compact.refusal(InvalidInput("/home/ward/state cannot be written")))
    assert told.value.done is None
    with pytest.raises(Refusal, match="has done round 7 already") as told:
        compact.decoded(Reply, compact.refusal(Ahead(3, 7)))
    assert told.value.done == 7


positions = st.fixed_dictionaries(
    {
        "wire": st.just(messages.WIRE),
        "plan": st.just(PLAN[: messages.SHORT]),
        "number": st.integers(0, 1 << 20),
        "weight": st.floats(allow_nan=False, allow_infinity=False),
        "round": st.integers(-1, 1 << 40),
        "oldest": st.integers(-1, 1 << 40),
        "counts": st.booleans(),
        "entry": st.integers(-1, 1 << 40),
    }
)


@settings(max_examples=200, deadline=None)
@given(positions)
def test_where_a_peer_is_arrives(position: dict[str, Any]) -> None:
    """In few bytes; and so does what version 2 says of it, in JSON."""
    told = compact.placed(position)
    assert compact.place(told) == position
    assert compact.place(json.dumps(position).encode()) == position


def test_a_position_is_small() -> None:
    position = {"wire": messages.WIRE, "plan": PLAN, "number": 3, "weight": 0.5, "round": 120}
    position |= {"oldest": 118, "counts": True, "entry": -1}
    assert len(json.dumps(position)) == 141
    assert len(compact.placed(position)) == 20


@settings(max_examples=300, deadline=None)
@given(positions, st.data())
def test_what_is_no_position_is_rejected(position: dict[str, Any], data: st.DataObject) -> None:
    told = bytearray(compact.placed(position))
    at = data.draw(st.integers(0, len(told) - 1))
    told[at] ^= data.draw(st.integers(1, 255))
    for spoilt in (bytes(told), bytes(told[:at]), bytes(told) + b"\x00"):
        try:
            found = compact.place(spoilt)
        except Rejected:
            continue
        assert found != position
