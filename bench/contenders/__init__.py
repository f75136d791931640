"""Who is timed. Each contender plays in a process of its own, in its own environment, and talks in
lines of JSON (worker.py).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from bench.problems import Problem

VENVS = Path(os.environ.get("COTERIE_BENCH_VENVS", Path(__file__).parents[2] / ".cache" / "bench"))
"""Where the environments of other frameworks are."""


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    title: str
    module: str
    """The file in this folder that has its `Player`."""
    kind: str = ""
    venv: str = ""
    """Its environment; nothing: the one that runs the bench."""
    needs: str = ""
    """What to install there."""
    threads: tuple[int, ...] = ()
    """Numbers of threads to try; none: as it likes."""
    methods: tuple[str, ...] = ()
    """The methods it plays; none: all."""
    models: tuple[str, ...] = ()
    restarts: bool = False
    """Whether its process must end with a problem."""
    elsewhere: bool = False
    """Whether other processes work for it, so that its own seconds of cores say nothing."""

    def plays(self, problem: Problem) -> bool:
        return (not self.methods or problem.method in self.methods) and (
            not self.models or problem.model in self.models
        )

    @property
    def python(self) -> Path:
        return VENVS / self.venv / "bin" / "python" if self.venv else Path(sys.executable)

    @property
    def install(self) -> str:
        if not self.venv:
            return f"{sys.executable} -m pip install {self.needs}"
        folder = VENVS / self.venv
        return f"python3.11 -m venv {folder} && {folder}/bin/pip install {self.needs}"


_TORCH = {"module": "torch_player", "needs": "torch==2.13.0", "threads": (1, 2)}
_OTHERS = {"methods": ("fedavg",), "models": ("mlr", "mlp")}

OURS = Contender("ours", "coterie", "ours")
CONTENDERS: tuple[Contender, ...] = (
    OURS,
    Contender("loop", "PyTorch loop", kind="loop", **_TORCH),
    Contender("stacked", "PyTorch stacked", kind="stacked", **_TORCH),
    Contender("gram", "stacked + Gram", kind="gram", **_TORCH, methods=("pfedme",)),
    Contender("func", "torch.func", kind="func", **_TORCH),
    Contender(
        "fedjax",
        "FedJAX 0.0.17",
        "fedjax_player",
        venv="fedjax",
        needs="fedjax==0.0.17 jax==0.4.23 jaxlib==0.4.23 dm-haiku==0.0.11 optax==0.1.8"
        " chex==0.1.85 'numpy<2' 'scipy<1.13'",
        **_OTHERS,
    ),
    Contender(
        "pfl",
        "pfl-research",
        "pfl_player",
        venv="pfl",
        needs="pfl torch==2.13.0",
        threads=(1,),  # its steps are those of the loop, which a second thread slows down here
        **_OTHERS,
    ),
    Contender(
        "flower",
        "Flower simulation",
        "flower_player",
        venv="flower",
        needs="'flwr[simulation]>=1.41,<1.42' torch==2.13.0",
        restarts=True,
        elsewhere=True,
        **_OTHERS,
    ),
)
