"""What a participant keeps on its own disk: one dataclass in one file that is replaced atomically.

The file is written and read by walking the dataclass. What a field is declared as says how it is
kept: `PyTree`, or a named tuple, as arrays; `bytes` as bytes; dataclasses, tables and lists part by
part; bills in a file of their own (deploy/bill.py); all else as JSON. A field that is `passing` is
not kept. A checksum over all of it is in the file: one that was changed on the disk, by whatever,
is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coterie.core.errors import InvalidInput
from coterie.core.files import writing
from coterie.deploy.bill import Bill, ledger_of

FORMAT = 5
"""Counted up when the file changes, also when a kept field gets another name. Files of the format
before are read as well: fields that they lack are as they are in the beginning, they have no
checksum, and the next save is in the new format.
"""

K = TypeVar("K")
_PASSING = {"passing": True}


def passing() -> Any:
    """A table of the dataclass that is empty again after a restart."""
    return dataclasses.field(default_factory=dict, metadata=_PASSING)


def save(path: Path, kept: Any, whose: dict[str, Any]) -> None:
    """Raises InvalidInput when the disk is full or the folder cannot be written; the old file then
    stays as it was. `whose` says to whom the file belongs.
    """
    arrays: dict[str, Any] = {}
    values = _packed(type(kept), kept, "", arrays)
    plain = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    facts = {
        "format": str(FORMAT),
        "kept": json.dumps(values, sort_keys=True),
        "whose": json.dumps(whose, sort_keys=True),
    }
    facts["sum"] = _checksum(plain, facts)
    with writing(path) as temporary:
        try:
            save_file(plain, temporary, metadata=facts)
        except SafetensorError as error:
            raise OSError(str(error)) from None


def _checksum(arrays: dict[str, Any], facts: dict[str, str]) -> str:
    """Of the arrays and of what is written beside them."""
    found = hashlib.sha256()
    for key in ("format", "kept", "whose"):
        found.update(f"{key} {len(facts[key])} {facts[key]}".encode())
    for key, array in sorted(arrays.items()):
        found.update(f"{key} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


class Damaged(InvalidInput):
    """A file that is not as it was written."""


def load(path: Path, like: K, whose: dict[str, Any], remedy: str = "") -> K:
    """Read back; `like` gives the structure and shapes of the arrays, `remedy` what to do when the
    file is damaged.
    """
    try:
        arrays, values, former = _opened(path, whose)
        try:
            found: K = _Reader(path, arrays, former).value(type(like), values, like, "")
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path, error) from None
    except Damaged as error:
        raise Damaged(f"{str(error)[:-1]}; {remedy}." if remedy else str(error)) from None
    return found


def peek(path: Path, whose: dict[str, Any]) -> dict[str, Any]:
    """What `load` would read, but for the arrays; their places hold how many there are."""
    return _opened(path, whose)[1]


def facts(path: Path) -> dict[str, Any]:
    """The same of a file that may be anybody's."""
    return _opened(path, None)[1]


def _opened(
    path: Path, whose: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Arrays, values, and whether they are of the format before."""
    try:
        with safe_open(path, "np") as f:
            names = f.keys()
            arrays = {key: f.get_tensor(key) for key in names}
            facts = f.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from None
    former = facts.get("format") == str(FORMAT - 1) and "sum" not in facts
    if facts.keys() & {"facts", "kept"} and facts.get("format") != str(FORMAT) and not former:
        raise InvalidInput(
            f"{str(path)!r} was written by another version of coterie, which this one cannot go"
            f" on from (format {facts.get('format', 'unknown')}; this one reads {FORMAT - 1} and"
            f" {FORMAT}); finish the run with that version, or choose another folder."
        )
    try:
        if not former and facts["sum"] != _checksum(arrays, facts):
            raise ValueError("its checksum is another one: something has changed it")
        values, owner = json.loads(facts["kept"]), json.loads(facts["whose"])
    except (ValueError, KeyError) as error:
        raise _damaged(path, error) from None
    if whose is not None and owner != whose:
        raise InvalidInput(
            f"{str(path)!r} belongs to another {' or '.join(whose)}; give this one a folder of its"
            " own."
        )
    return arrays, values, former


def _damaged(path: Path, error: Exception) -> Damaged:
    return Damaged(
        f"{str(path)!r} cannot be read ({error}); it is not what a participant keeps, or it is"
        " damaged."
    )


def _bare(kind: Any) -> Any:
    """A type without "or None"."""
    if get_origin(kind) is types.UnionType:
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _is_tree(kind: Any) -> bool:
    return kind is Any or (isinstance(kind, type) and hasattr(kind, "_fields"))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass that are kept, with their types."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.metadata != _PASSING}


def _packed(kind: Any, value: Any, where: str, arrays: dict[str, Any]) -> Any:
    """A value as JSON; arrays and bytes go to `arrays`, under the path `where`."""
    kind, origin = _bare(kind), get_origin(_bare(kind))
    if value is None:
        return None
    if _is_tree(kind):
        leaves = jax.tree.leaves(value)
        arrays |= {f"{where}/{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return len(leaves)
    if kind is bytes:
        arrays[where] = np.frombuffer(value, np.uint8)
        return len(value)
    if kind is Bill:
        return value.file()
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        items = {name: (part, getattr(value, name)) for name, part in _fields(kind).items()}
        return {name: _packed(*item, f"{where}/{name}", arrays) for name, item in items.items()}
    if origin is dict:
        part = get_args(kind)[1]
        return {str(k): _packed(part, v, f"{where}/{k}", arrays) for k, v in value.items()}
    if origin in (list, tuple):
        part = get_args(kind)[0]
        return [_packed(part, v, f"{where}/{i}", arrays) for i, v in enumerate(value)]
    return value


class _Reader:
    """The inverse of `_packed`."""

    def __init__(self, path: Path, arrays: dict[str, Any], former: bool = False) -> None:
        self.path, self.arrays, self.former = path, arrays, former

    def value(self, kind: Any, packed: Any, like: Any, where: str) -> Any:
        kind, origin = _bare(kind), get_origin(_bare(kind))
        if packed is None:
            return None
        if _is_tree(kind):
            return self.tree(packed, () if like is None else like, where)
        if kind is bytes:
            return self.arrays[where].tobytes()
        if kind is Bill:
            return ledger_of(like, packed, self.arrays, where)
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            parts = {
                name: self.value(part, packed[name], getattr(like, name, None), f"{where}/{name}")
                for name, part in _fields(kind).items()
                if name in packed or not self.former
            }
            return kind(**parts)
        if origin is dict:
            return self.table(kind, packed, like or {}, where)
        if origin in (list, tuple):
            part, known = get_args(kind)[0], [*(like or ())]
            known += [None] * (len(packed) - len(known))
            return origin(
                self.value(part, packed[i], known[i], f"{where}/{i}") for i in range(len(packed))
            )
        return packed

    def table(self, kind: Any, packed: Any, like: dict[Any, Any], where: str) -> dict[Any, Any]:
        key, part = get_args(kind)
        if dataclasses.is_dataclass(part) and set(like) != set(map(key, packed)):
            raise InvalidInput(
                f"the {where.rpartition('/')[2]} were changed since the run began; undo that, or"
                " choose another folder."
            )
        return {
            key(k): self.value(part, v, like.get(key(k)), f"{where}/{k}") for k, v in packed.items()
        }

    def tree(self, count: int, like: Any, where: str) -> Any:
        leaves, structure = jax.tree.flatten(like)
        found = [self.arrays[f"{where}/{i:04d}"] for i in range(count)]
        form = lambda values: [(tuple(a.shape), a.dtype) for a in values]
        if form(found) != form(leaves):
            raise InvalidInput(
                f"{str(self.path)!r} holds arrays of other shapes than the plan asks for; it"
                " belongs to another plan."
            )
        return jax.tree.unflatten(structure, [jnp.asarray(a) for a in found])
