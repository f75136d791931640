"""What participants keep: one dataclass in one file, and the same again after a restart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from coterie.core.errors import InvalidInput
from coterie.core.typing import PyTree
from coterie.deploy import kept as disk
from coterie.deploy.bill import Bill


class Pair(NamedTuple):
    a: PyTree
    b: PyTree = ()


@dataclasses.dataclass(frozen=True)
class Part:
    tree: PyTree
    note: str = ""
    wire: bytes | None = None
    gone: dict[int, bytes] = disk.passing()


@dataclasses.dataclass(frozen=True)
class Everything:
    pair: Pair
    ledger: Bill
    parts: dict[str, Part]
    listed: list[Part]
    frames: tuple[bytes, ...] = ()
    outbox: dict[int, bytes] = dataclasses.field(default_factory=dict)
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    number: float = 0.0
    reply: Part | None = None


WHOSE = {"plan": "x", "client": 3}


def fresh(folder: Path | None = None) -> Everything:
    zero = np.zeros(3, np.float32)
    part = Part({"w": zero})
    return Everything(Pair(zero), Bill(2, folder=folder), {"near": part}, [part])


def made(folder: Path | None = None) -> Everything:
    """Something in every field that is not what it begins with."""
    one = np.arange(3, dtype=np.float32) / 7
    part = Part({"w": one}, "é", b"\0\xff", {1: b"x"})
    ledger = Bill(2, folder=folder)
    ledger.add(4, np.array([0, 1]), 10, np.array([7, 8]), 1)
    return Everything(
        Pair(one + 1),
        ledger,
        {"near": part},
        [part],
        (b"", b"abc"),
        {12: b"wire"},
        {"test/personal": 1 / 3},
        0.1,
        Part((), "reply"),
    )


def same(a: Any, b: Any) -> None:
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        for field in dataclasses.fields(a):
            if not isinstance(a, Bill) and field.name != "gone":
                same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        same(list(a.values()), list(b.values()))
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


def test_all_of_it_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    disk.save(path, made(tmp_path), WHOSE)
    found = disk.load(path, fresh(tmp_path), WHOSE)
    same(made(), found)
    assert found.parts["near"].gone == {}
    np.testing.assert_array_equal(found.ledger.rows(), made().ledger.rows())
    assert found.ledger.totals() == made().ledger.totals()
    disk.save(path, fresh(tmp_path), WHOSE)
    same(fresh(), disk.load(path, fresh(tmp_path), WHOSE))


def other_shape() -> Everything:
    return dataclasses.replace(fresh(), pair=Pair(np.zeros(4, np.float32)))


def other_type() -> Everything:
    return dataclasses.replace(fresh(), pair=Pair(np.zeros(3, np.float64)))


def other_parts() -> Everything:
    return dataclasses.replace(fresh(), parts={"far": fresh().parts["near"]})


@pytest.mark.parametrize(
    ("like", "whose", "sentence"),
    [
        (fresh, WHOSE | {"client": 4}, "belongs to another plan or client"),
        (other_shape, WHOSE, "arrays of other shapes"),
        (other_type, WHOSE, "arrays of other shapes"),
        (other_parts, WHOSE, "the parts were changed since the run began"),
    ],
)
def test_what_belongs_to_others_is_refused(
    tmp_path: Path, like: Any, whose: dict[str, Any], sentence: str
) -> None:
    disk.save(tmp_path / "kept", made(tmp_path), WHOSE)
    expected = dataclasses.replace(like(), ledger=Bill(2, folder=tmp_path))
    with pytest.raises(InvalidInput, match=sentence) as refused:
        disk.load(tmp_path / "kept", expected, whose)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize(
    "facts",
    [{"facts": "{}"}, {"kept": "{}"}]
    + [{"kept": "{}", "format": str(disk.FORMAT + by)} for by in (-2, 1)],
)
def test_files_of_other_versions_are_refused(tmp_path: Path, facts: dict[str, str]) -> None:
    path = tmp_path / "kept"
    metadata = {"whose": json.dumps(WHOSE), **facts}
    save_file({"tree/row/0000": np.zeros(3)}, path, metadata=metadata)
    with pytest.raises(InvalidInput, match=r"^'[^']*' was written by another version"):
        disk.load(path, fresh(), WHOSE)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    disk.save(path, made(tmp_path), WHOSE)
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole.replace(b"outbox", b"inboxx")):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="cannot be read"):
            disk.load(path, fresh(tmp_path), WHOSE)


def test_every_change_on_the_disk_is_refused(tmp_path: Path) -> None:
    """A bit in any byte: in one sentence. (All that a change can be missed in is the blank space
    after the header.)
    """
    path = tmp_path / "kept"
    disk.save(path, made(tmp_path), WHOSE)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    blank = range(len(whole[:header].rstrip()), header)
    assert len(blank) < 8
    for at in set(range(len(whole))) - set(blank):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(InvalidInput) as refused:
            disk.load(path, fresh(tmp_path), WHOSE)
        assert str(refused.value).count("\n") == 0


def unsummed(facts: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in facts.items() if key != "sum"}


def test_a_file_of_the_format_before_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks is as in a new one."""
    path, fields = tmp_path / "kept", dict(disk._fields(Everything))
    with monkeypatch.context() as past:
        past.setattr(disk, "FORMAT", disk.FORMAT - 1)
        past.setattr(disk, "save_file", lambda *a, metadata: save_file(*a, unsummed(metadata)))
        old = {k: v for k, v in fields.items() if k != "scores"}
        past.setattr(disk, "_fields", lambda kind: old if kind is Everything else {})
        disk.save(path, dataclasses.replace(made(tmp_path), parts={}, listed=[], reply=None), WHOSE)
    found = disk.load(path, dataclasses.replace(fresh(tmp_path), parts={}, listed=[]), WHOSE)
    assert found.scores == {}
    assert found.outbox == {12: b"wire"}
