"""Where the time of a round goes: milliseconds in each of XLA's operations, the largest first.

    python -m bench.round_profile --row 10            # a row of the table (python -m bench --list)
    python -m bench.round_profile --row 13 --devices 1
    python -m bench.round_profile --row 13 --once     # only what happens at most once a client

Times are those of all devices together, by JAX's profiler, which itself takes some time.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bench.problems import ROWS


class Spent(NamedTuple):
    """An operation of a compiled program."""

    name: str
    what: str
    seconds: float
    times: int


def spent(run: Callable[[], Any], program: str) -> list[Spent]:
    """What `run` spends in the operations of a compiled program, whose text is given."""
    lines = {}
    for line in program.splitlines():
        name, found, what = line.strip().removeprefix("ROOT ").partition(" = ")
        if found:
            lines[name.lstrip("%")] = what.split(", metadata")[0][:110]
    seconds: collections.Counter[str] = collections.Counter()
    times: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        file = next(Path(folder).rglob("*.xplane.pb"))
        data = jax.profiler.ProfileData.from_file(str(file))
        for event in (e for plane in data.planes for line in plane.lines for e in line.events):
            if event.name in lines and not event.name.startswith(("while", "call")):
                seconds[event.name] += event.duration_ns / 1e9
                times[event.name] += 1
    return [Spent(n, lines[n], t, times[n]) for n, t in seconds.most_common()]


def show(found: list[Spent], parts: int, part: str, most: int) -> None:
    """A line for each of the largest, in milliseconds of a `part`, of which there were so many."""
    total = sum(each.seconds for each in found)
    print(f"all: {1e3 * total / parts:.2f} ms a {part}")
    for each in found[:most]:
        took, times = 1e3 * each.seconds / parts, each.times / parts
        print(f"{took:9.3f} {times:7.1f}×  {each.name:32} {each.what}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", type=int, required=True, choices=range(len(ROWS)))
    parser.add_argument("--devices", type=int)
    parser.add_argument("--once", action="store_true", help="without what each local step does")
    parser.add_argument("--most", type=int, default=24, help="operations that are printed")
    arguments = parser.parse_args()
    from bench.contenders.ours import simulator_of
    from bench.hlo import block_of

    problem = ROWS[arguments.row]
    simulator = simulator_of(problem, devices=arguments.devices)
    program = block_of(simulator).compile().as_text()

    def one_round() -> None:
        simulator.advance(1)
        jax.block_until_ready(simulator.store.rows)

    one_round()
    found = spent(one_round, program)
    if arguments.once:
        found = [each for each in found if each.times <= problem.trainers]
    print(problem.name)
    show(found, 1, "round", arguments.most)


if __name__ == "__main__":
    main()
