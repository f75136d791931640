"""`coterie data map`, and runs on what it wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

import coterie
from coterie.data.digest import hash_federation
from coterie.data.mapped import load_mapped
from tests.conftest import Cli

RUN = """
[data]
name = "mapped"
path = "many"
[training]
rounds = 2
eval_every = 2
cohort = 1
store = "file"
[method]
name = "fedavg"
local_steps = 2
"""


def test_a_run_on_mapped_arrays(cli: Cli) -> None:
    code, out, _ = cli("data", "map", "digits", "clients=5", "-o", "many")
    assert code == 0
    assert '[data] name = "mapped", path = "many"' in out
    assert hash_federation(load_mapped("many")) == hash_federation(
        coterie.load("digits", clients=5)
    )
    Path("mapped.toml").write_text(RUN)
    Path("read.toml").write_text(RUN.replace('"mapped"\npath = "many"', '"digits"\nclients = 5'))
    for name in ("mapped", "read"):
        assert cli("run", f"{name}.toml", "-o", name)[0] == 0
    one, two = (pq.read_table(f"{name}/clients.parquet") for name in ("mapped", "read"))
    assert one.equals(two)


def test_what_is_wrong_is_said_in_a_sentence(cli: Cli) -> None:
    cli("data", "map", "digits", "clients=5", "-o", "many")
    code, _, said = cli("data", "map", "digits", "clients=5", "-o", "many")
    assert code == 2
    assert "holds a federation already" in said
    code, _, said = cli("data", "show", "mapped", "path=nowhere")
    assert code == 2
    assert "holds no federation" in said
