"""One contender in a process: `python -m bench.contenders.worker MODULE [KIND]`.

It reads a line of JSON and answers with one:

    {"prepare": {...problem...}}           → {"seconds": …, "cpu": …}
    {"rounds": 3, "threads": 2}            → the same, of all three rounds
    {"facts": true}                        → whatever the contender says of its program

An answer may be {"error": "…"}. The process ends when its input does.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from bench.problems import Problem


class Worker:
    def __init__(self, module: str, kind: str) -> None:
        self.module, self.kind = module, kind
        self.player: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "facts" in asked:
            found: dict[str, Any] = self.player.facts()
            return found
        begun, worked = time.perf_counter(), time.process_time()
        if "prepare" in asked:
            self.player = None  # lets the last problem's memory go
            module = importlib.import_module(f"bench.contenders.{self.module}")
            self.player = module.Player(Problem.read(asked["prepare"]), self.kind)
        else:
            if asked.get("threads"):
                self.player.threads(asked["threads"])
                begun, worked = time.perf_counter(), time.process_time()
            self.player.rounds(asked["rounds"])
        cpu = time.process_time() - worked
        return {"seconds": time.perf_counter() - begun, "cpu": cpu}


def main() -> None:
    # Frameworks print; what is ours goes where standard output went.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    for line in sys.stdin:
        try:
            found = worker.answer(json.loads(line))
        except Exception as error:  # told to whoever asked, who goes on without
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), file=out)
    if hasattr(worker.player, "close"):
        worker.player.close()
    os._exit(0)  # frameworks leave threads behind


if __name__ == "__main__":
    main()
