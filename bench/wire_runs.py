"""Bytes on the wire of whole runs over Zenoh, from the first packet of connecting to the last one.

python bench/wire_runs.py                   # as root; some minutes

bench/wire.py measures what an exchange costs. Who talks rarely has few of them, and then connecting
(a TLS handshake with certificates on both sides, declarations) and the farewell count as well.
Here a hub and three clients run plans of 100 rounds of FedU: with whole models in every round, and
with the largest 10% of the differences in 4 bits in every 34th, as docs/rarely.md has it. The hub
knows the plan before its clients come. All of TCP is counted, with Ethernet's and IP's headers; ARP
and what a bridge says of its own accord are not. Data are random: accuracies are in
experiments/graph.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from wire import BRIDGE, PROBLEMS, SKETCHES, counted, lab, prepare
from wire_carriers import Crew, start_zenoh
from wire_split import Looker

ROUNDS = 100


class Pace(NamedTuple):
    """What is sent, and in every so manieth round."""

    sent: str
    every: int


def paces(in_turn: str) -> list[Pace]:
    few = "largest 10%, 4 bits"
    return [
        Pace("whole", 1),
        Pace(in_turn, 1),
        Pace(in_turn, 10),
        Pace(few, 34),
        Pace(SKETCHES, 34),
    ]


class Whole(NamedTuple):
    """Bytes of a client in a run, both ways."""

    exchanges: int
    payload: float
    wire: float
    seconds: float


def measured(folder: Path, clients: int) -> Whole:
    with lab(clients + 1) as spaces:
        crew, looker, begun = Crew(folder, spaces), Looker(BRIDGE, clients), time.monotonic()
        try:
            run, _ = start_zenoh(crew, clients, counted, look=0.0)
            joined = crew.running[-clients:]
            ended = lambda: all(process.poll() is not None for process in joined)
            crew.wait("the end", ended, 900)
            seen = looker.counted()
            seconds = time.monotonic() - begun
        finally:
            crew.stop()
            looker.stop()
        status = json.loads((run / "status.json").read_text())
    payload = int(status["up"]) + int(status["down"])
    wire = seen["carried"] + seen["headers"] + seen["acks"]
    return Whole(status["round"], payload / clients, wire / clients, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", action="append", choices=PROBLEMS, help="nothing: all")
    parser.add_argument("--clients", type=int, default=3)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    print(
        "| model | sent | in every … round | exchanges | payload | wire | s |"
        " payload, times fewer | wire, times fewer |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.problem or PROBLEMS:
        problem, whole = PROBLEMS[name], None
        for pace in paces(f"in turn, {100 * problem.shares[0]:g}%"):
            with tempfile.TemporaryDirectory(prefix="coterie-wire-") as made:
                prepare(Path(made), problem, pace.sent, given.clients, ROUNDS, pace.every)
                f = measured(Path(made), given.clients)
            whole = whole or f
            print(
                f"| {name} | {pace.sent} | {pace.every} | {f.exchanges} | {f.payload:,.0f} |"
                f" {f.wire:,.0f} | {f.seconds:.0f} | {whole.payload / f.payload:,.0f} |"
                f" {whole.wire / f.wire:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
