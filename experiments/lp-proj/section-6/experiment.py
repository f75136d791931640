"""lp-proj's Section 6: a model of ResNet-34's size, P in 50 diagonal blocks beside a dense P.

python experiments/lp-proj/section-6/experiment.py  # up to 11 GB; writes result.md, result.csv

First P alone: what it keeps in memory ("kept": the arrays that it holds; "resident": by how much
the process has grown once it is drawn; "peak": the most it grew by in all), and the time to project
one model, P x, and to lift one message, Pᵀv: medians of 5, of the clock and of the CPU. coterie's
dense P keeps its transpose, too, so twice dsub·d numbers; alone it is drawn layer by layer here,
since `projection.draw` needs twice as much while it draws. "Drawn again" is `regenerate`: one block
in memory at a time. Then rounds, by bench/big.py: random pictures of 16×16×3, 10 classes, 100
clients whose states lie in a file, 2 of them in a round, 2 mini-batches of 4 with one inner step
each; medians of 5 rounds after one that compiles. Every row is a process of its own.

The paper does not say its dsub. Table 2 has 1.2·10⁷ "bytes" for lp-proj-1, which is 60,000 in each
of 200 rounds, and lp-proj-2's 1.152·10⁷ are 192 such rounds. 10 clients send and receive, 20
messages a round, so a message is 3,000: as many numbers if the column counts numbers, as "bytes" do
in Table 5 (experiments/lp-proj/FINDINGS.md), or 750 of 4 bytes. Rounds have the smaller, so that
they fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT))
sys.path.append(str(ROOT / "experiments"))

from tables_to_csv import as_csv  # noqa: E402

from bench import big  # noqa: E402
from bench.scale import machine, status  # noqa: E402

DEPTH, COHORT = 34, 2
CELLS = HERE / "cells.json"
"""What was measured, before it was rounded; a run that was stopped goes on with the rest."""
PAPERS = int(1.2e7 / (200 * 2 * 10))
"""dsub, if Table 2 counts numbers; a quarter, if bytes."""


def blocks(count: int, dsub: int, **more: Any) -> dict[str, Any]:
    return {"projection": "block", "dsub": dsub, "blocks": count, **more}


ALONE: dict[str, dict[str, Any]] = {
    f"50 blocks, {PAPERS:,}": blocks(50, PAPERS),
    f"50 blocks, {PAPERS // 4}": blocks(50, PAPERS // 4),
    f"50 blocks drawn again, {PAPERS // 4}": blocks(50, PAPERS // 4, regenerate=True),
    "10 blocks, 100": blocks(10, 100),
    "50 blocks, 100": blocks(50, 100),
    "100 blocks, 100": blocks(100, 100),
    "50 blocks, 50": blocks(50, 50),
    "dense, 50": {"projection": "dense", "dsub": 50},
}
TRAINED = {
    f"{method}; {name}": (method, big.LP | given, "plain")
    for name, given in (
        (f"50 blocks, {PAPERS // 4}", blocks(50, PAPERS // 4)),
        ("dense, 20", {"projection": "dense", "dsub": 20}),
    )
    for method in ("lp-proj-2", "lp-proj-1")
}


def layer_by_layer(template: Any, dsub: int) -> Any:
    """A dense P as `projection.draw` makes it, of other random numbers and in less memory."""
    import jax
    import jax.numpy as jnp

    from coterie.coupling.projection import Dense

    keys = jax.random.split(jax.random.key(0), len(template.leaves))
    draw = jax.jit(lambda key, n: jax.random.normal(key, (dsub, n)), static_argnums=1)
    parts = [draw(key, leaf.size) for key, leaf in zip(keys, template.leaves, strict=True)]
    length = jnp.sqrt(sum(jnp.sum(part**2, axis=1) for part in parts))[:, None]
    for i, part in enumerate(parts):
        parts[i] = part / length
    return Dense(tuple(parts), tuple(jnp.array(part.T) for part in parts))


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Medians of 5: seconds of the clock and of the CPU."""
    import jax

    jax.block_until_ready(run())
    found = []
    for _ in range(5):
        at, busy = time.perf_counter(), time.process_time()
        jax.block_until_ready(run())
        found.append((time.perf_counter() - at, time.process_time() - busy))
    wall, cpu = np.median(found, axis=0)
    return float(wall), float(cpu)


def alone(name: str) -> dict[str, Any]:
    """P by itself."""
    import jax
    import jax.numpy as jnp

    import coterie
    from coterie.coupling import projection

    given = {k: v for k, v in ALONE[name].items() if k not in ("projection", "dsub")}
    kind, dsub = ALONE[name]["projection"], ALONE[name]["dsub"]
    model = coterie.get_model("resnet", {"depth": DEPTH})
    template = model.build((16, 16, 3), 10).vector(jax.random.key(1))
    base = status("VmRSS")
    begun, busy = time.perf_counter(), time.process_time()
    p = (
        layer_by_layer(template, dsub)
        if kind == "dense"
        else projection.draw(kind, template, dsub, jax.random.key(0), **given)
    )
    jax.block_until_ready(jax.tree.leaves(p))
    found: dict[str, Any] = {
        "d": template.size,
        "dsub": dsub,
        "draw": time.perf_counter() - begun,
        "draw_cpu": time.process_time() - busy,
        "kept": sum(leaf.nbytes for leaf in jax.tree.leaves(p)) / 1e6,
        "resident": status("VmRSS") - base,
        "base": base,
    }
    v = jnp.ones(dsub, template.dtype)
    project, lift = jax.jit(lambda p, x: p(x)), jax.jit(lambda p, v, x: p.back(v, x))
    found["project"], found["project_cpu"] = timed(lambda: project(p, template))
    found["lift"], found["lift_cpu"] = timed(lambda: lift(p, v, template).leaves)
    return found | {"peak": status("VmHWM")}


def trained(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return big.rounds(DEPTH, TRAINED[name], folder, cohort=COHORT)[1]


def in_a_process(part: str, name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / "experiment.py"), part, name],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"load": os.getloadavg()[0]}


def tables(of_p: dict[str, dict[str, Any]], of_rounds: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| P, dsub | dsub·d numbers, MB | kept, MB | of dsub·d | resident, MB | to draw, s (CPU) |"
        " P x, ms (CPU) | Pᵀv, ms (CPU) | peak − base, MB | load |",
        "|" + "---|" * 10,
    ]
    for name, c in of_p.items():
        whole = 4e-6 * c["dsub"] * c["d"]
        ms = lambda part, c=c: f"{1e3 * c[part]:,.0f} ({1e3 * c[part + '_cpu']:,.0f})"
        share = f"1/{whole / c['kept']:,.1f}" if c["kept"] < whole else f"{c['kept'] / whole:.1f}"
        if c["kept"] < 1:
            share = "–"
        lines.append(
            f"| {name} | {whole:,.0f} | {c['kept']:,.1f} | {share} | {c['resident']:,.0f} |"
            f" {c['draw']:.1f} ({c['draw_cpu']:.1f}) | {ms('project')} | {ms('lift')} |"
            f" {c['peak'] - c['base']:,.0f} | {c['load']:.1f} |"
        )
    if not of_rounds:
        return lines
    lines += [
        "",
        "## Rounds",
        "",
        "| method; P, dsub | P, MB | peak − base, MB | s a round | CPU s a round |"
        " up, bytes a client | down, bytes a client | first round, s | load |",
        "|" + "---|" * 9,
    ]
    for name, c in of_rounds.items():
        lines.append(
            f"| {name} | {c['p']:,.0f} | {c['peak'] - c['base']:,.0f} | {c['round']:.1f} |"
            f" {c['busy']:.1f} | {c['up']:,.0f} | {c['down']:,.0f} | {c['first']:.0f} |"
            f" {c['load']:.1f} |"
        )
    return lines


def write(found: dict[str, dict[str, Any]]) -> None:
    of_p = {name: found["alone"][name] for name in ALONE if name in found["alone"]}
    of_rounds = {name: found["trained"][name] for name in TRAINED if name in found["trained"]}
    d = next(iter(of_p.values()))["d"]
    gb = lambda numbers: f"{4e-9 * numbers:,.2f} GB"
    text = [
        "# lp-proj, Section 6: P in blocks and dense",
        "",
        f"`python experiments/lp-proj/section-6/experiment.py`, {machine()}. ResNet-34 with 10"
        f" classes, d = {d:,}; the docstring has the setting. Other runs shared the machine, so"
        " seconds of the CPU say more than those of the clock; load is that of the minute before"
        " the row ended.",
        "",
        "## P alone",
        "",
        *tables(of_p, of_rounds),
        "",
        "## Computed",
        "",
        "Computed, not measured (4 bytes a number), at what may be the paper's dsub:",
        "",
        "| dsub | dense P | with its transpose | 50 blocks, dsub·d/50 | one of them, dsub·d/50² |",
        "|---|---|---|---|---|",
        *(
            f"| {dsub:,.0f} | {gb(dsub * d)} | {gb(2 * dsub * d)} | {gb(dsub * d / 50)} |"
            f" {gb(dsub * d / 2500)} |"
            for dsub in (PAPERS, PAPERS / 4)
        ),
    ]
    page = HERE / "result.md"
    page.write_text("\n".join(text) + "\n", encoding="utf-8")
    page.with_suffix(".csv").write_text(as_csv(page), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["alone", "trained"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--again", action="store_true", help="measure everything anew")
    given = parser.parse_args()
    if given.part:
        print(json.dumps({"alone": alone, "trained": trained}[given.part](given.name)))
        return
    found: dict[str, dict[str, Any]] = {"alone": {}, "trained": {}}
    if CELLS.is_file() and not given.again:
        found = json.loads(CELLS.read_text())
    for part, names in (("alone", ALONE), ("trained", TRAINED)):
        for name in names:
            if name not in found[part]:
                found[part][name] = in_a_process(part, name)
                print(name, {k: round(v, 2) for k, v in found[part][name].items()}, flush=True)
                CELLS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
                write(found)


if __name__ == "__main__":
    main()
