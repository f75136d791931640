"""What a compiled program executes, read from its text: XLA's own cost analysis counts the body of
a loop once, here it counts as often as it runs.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call"),
    *("conditional", "after-all", "partition-id", "replica-id", "iota"),
}
"""Instructions that are no work of their own."""

_BEGIN = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|body|to_apply|called_computations)=\{?%?([\w.\-]+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


class Work(NamedTuple):
    """Of one run of a program."""

    flops: float
    """Of matrix products and convolutions, two per multiplication."""
    operations: float
    """Instructions that compute something; a fusion is one."""

    def times(self, n: int) -> Work:
        return Work(n * self.flops, n * self.operations)


class Instruction(NamedTuple):
    name: str
    shape: str
    kind: str
    rest: str

    @property
    def dimensions(self) -> list[int]:
        found = _SHAPE.search(self.shape)
        return [int(n) for n in found[1].split(",") if n] if found else []

    @property
    def numbers(self) -> int:
        """How many numbers its result has."""
        return math.prod(self.dimensions)


class Program:
    """The computations of a compiled module (`compiled.as_text()`)."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        inside: list[Instruction] | None = None
        for line in text.splitlines():
            if (begin := _BEGIN.match(line)) is not None:
                inside = self.computations.setdefault(begin[2], [])
                self.entry = begin[2] if begin[1] else self.entry
            elif line.startswith("}"):
                inside = None
            elif inside is not None and (found := _LINE.match(line)) is not None:
                inside.append(Instruction(*found.groups()))
        parts = re.search(r"num_partitions=(\d+)", text)
        self.devices = int(parts[1]) if parts else 1
        self.aliased = re.findall(r"\(\d+, \{\}, (?:may|must)-alias\)", text.partition("\n")[0])
        self.work = lru_cache(None)(self._work)

    def total(self) -> Work:
        """Of all devices; a loop whose length is not known (the rounds of a block) counts once."""
        return self.work(self.entry).times(self.devices)

    def _work(self, computation: str, fused: bool = False) -> Work:
        flops = operations = 0.0
        made = {i.name: i for i in self.computations.get(computation, [])}
        for found in self.computations.get(computation, []):
            operations += not fused and found.kind not in FREE
            if found.kind == "dot":
                flops += self._dot(found, made)
            elif found.kind == "convolution":
                flops += self._convolution(found, made)
            elif found.kind == "custom-call" and "matmul" in found.rest:
                raise ValueError(f"a product that is not counted: {found.rest[:200]}")
            trips = _TRIPS.search(found.rest) if found.kind == "while" else None
            for called in _CALLED.findall(found.rest):
                inner = self.work(called, fused or found.kind not in ("while", "call"))
                inner = inner.times(int(trips[1]) if trips else 1)
                flops, operations = flops + inner.flops, operations + inner.operations
        return Work(flops, operations)

    @staticmethod
    def _dot(found: Instruction, made: dict[str, Instruction]) -> float:
        left = re.findall(r"%?([\w.\-]+)", found.rest)[0]
        over = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", found.rest)
        sizes = made[left].dimensions
        inner = math.prod(sizes[int(i)] for i in over[1].split(",") if i) if over else 1
        return 2.0 * found.numbers * inner

    @staticmethod
    def _convolution(found: Instruction, made: dict[str, Instruction]) -> float:
        kernel = made[re.findall(r"%([\w.\-]+)", found.rest)[1]].dimensions
        labels = re.search(r"dim_labels=\w+_(\w+)->", found.rest)
        outputs = kernel[labels[1].index("o")] if labels else 1
        return 2.0 * found.numbers * math.prod(kernel) / outputs


def block_of(simulator: Any, rounds: int = 50) -> Any:
    """The simulator's program for a block of rounds, lowered."""
    from coterie.engine.rounds import compiled_block
    from coterie.engine.setting import State

    state = State(simulator.hub_state, simulator.store.rows)
    return compiled_block.lower(
        spec=simulator.spec,
        length=rounds,
        setting=simulator.setting,
        state=state,
        t0=0,
        count=1,
    )
