"""A dozen runs whose every bit is written down: `python -m tests.support.pinned` prints their
digests.

They go through the public face of the package only, so that the house behind it can be rebuilt.
Bits depend on the processor and on XLA's version: tests/test_pinned.py skips elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RUNS: dict[str, dict[str, Any]] = {
    "local": {"method": "local"},
    "global": {"method": "global"},
    "fedavg-sampled": {"method": "fedavg", "cohort": 3, "options": {"weighting": "samples"}},
    "scaffold": {"method": "scaffold"},
    "per-fedavg": {"method": "per-fedavg"},
    "pfedme-sampled": {"method": "pfedme", "cohort": 3, "options": {"local_rounds": 2}},
    "pfedme-delta-down": {
        "method": "pfedme",
        "options": {"local_rounds": 2},
        "channel": ("delta", {"share": 0.1, "down": True}),
    },
    "ditto-qsgd": {"method": "ditto", "channel": ("qsgd", {})},
    "lp-proj-1-liars": {
        "method": "lp-proj-1",
        "options": {"local_rounds": 2, "inner_steps": 3, "dsub": 9},
        "attack": ("sign-flip", {"fraction": 0.3}),
    },
    "lp-proj-2-host": {
        "method": "lp-proj-2",
        "options": {"local_rounds": 2, "inner_steps": 3, "dsub": 9},
        "store": "host",
        "cohort": 3,
    },
    "fedu-similar-all": {
        "method": "fedu",
        "options": {"neighbours": "all"},
        "cohort": 3,
        "graph": "similar",
    },
    "fedu-delta": {"method": "fedu", "channel": ("delta", {"share": 0.05}), "graph": "similar"},
    "fedu-turns": {
        "method": "fedu",
        "channel": ("delta", {"pick": "cyclic", "values": "int4", "share": 0.1, "down": True}),
    },
    "dfedu-ring": {"method": "dfedu", "graph": "ring"},
    "graph-proj-2": {"method": "graph-proj", "options": {"dsub": 9}, "graph": "ring"},
    "mocha": {"method": "mocha"},
    "dgc-float64": {"method": "fedavg", "channel": ("dgc", {}), "precision": "float64"},
}


def digest_of(name: str) -> str:
    """SHA-256 over all personal models, the bill and the scores of one run."""
    import coterie
    from coterie.adversary import get_attack
    from coterie.channel import get_channel

    given = RUNS[name]
    fed = coterie.load("digits", clients=6)
    graph = coterie.graph.build(given["graph"], fed) if "graph" in given else None
    extra: dict[str, Any] = {}
    if "channel" in given:
        extra["channel"] = get_channel(*given["channel"])
    if "attack" in given:
        extra["attack"] = get_attack(*given["attack"])
    method = coterie.get_method(given["method"], given.get("options", {}))
    result = coterie.simulate(
        method,
        fed,
        "mlr",
        graph=graph,
        rounds=4,
        eval_every=2,
        batch_size=8,
        **{k: given[k] for k in ("cohort", "store", "precision") if k in given},
        **extra,
    )
    state = hashlib.sha256()
    for client in range(fed.clients):
        state.update(np.asarray(result.personal(client).flat()).tobytes())
    state.update(result.ledger.rows().astype("<i8").tobytes())
    for snapshot in result.snapshots:
        for split in sorted(snapshot.scores):
            state.update(np.asarray(snapshot.scores[split].score, "<f8").tobytes())
    return state.hexdigest()


def machine() -> dict[str, str]:
    """What the bits depend on."""
    import jaxlib.version

    info = Path("/proc/cpuinfo")
    flags = ""
    if info.is_file():
        line = next((s for s in info.read_text().splitlines() if s.startswith("flags")), "")
        flags = " ".join(sorted(f for f in line.split() if f.startswith(("avx", "fma", "amx"))))
    return {"machine": platform.machine(), "jaxlib": jaxlib.version.__version__, "flags": flags}


def main(names: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    chosen = names or list(RUNS)
    say(json.dumps({"platform": machine(), "runs": {n: digest_of(n) for n in chosen}}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
