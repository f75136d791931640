"""Where compiled programs are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = (
    "from coterie.core.program_cache import use_users_cache; use_users_cache();"
    " import os; print(os.environ.get('JAX_COMPILATION_CACHE_DIR'))"
)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"COTERIE_CACHE": "{}/mine", "XDG_CACHE_HOME": "{}/xdg"}, "{}/mine/programs"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "{}/xdg/coterie/programs"),
        ({"HOME": "{}"}, "{}/.cache/coterie/programs"),
        ({"HOME": "{}", "COTERIE_CACHE": "~/here"}, "{}/here/programs"),
        ({"COTERIE_CACHE": "{}/mine", "COTERIE_NO_CACHE": "1"}, "None"),
    ],
)
def test_coterie_cache_moves_compiled_programs(
    given: dict[str, str], want: str, tmp_path: Path
) -> None:
    ours = ("COTERIE_CACHE", "XDG_CACHE_HOME", "COTERIE_NO_CACHE", "JAX_COMPILATION_CACHE_DIR")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    environment |= {k: v.format(tmp_path) for k, v in given.items()}
    said = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == want.format(tmp_path)
