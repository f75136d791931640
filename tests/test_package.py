"""What `import coterie` gives, and what it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import coterie


def test_every_name_is_there() -> None:
    assert set(coterie.__all__) <= set(dir(coterie))
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    assert coterie.data.Federation is coterie.Federation


def test_a_name_that_is_not() -> None:
    with pytest.raises(AttributeError, match="'coterie' has no attribute 'fedu2'"):
        _ = coterie.fedu2


@pytest.mark.parametrize("module", ["coterie", "coterie.cli", "coterie.deploy.keys.authority"])
def test_jax_is_not_waited_for(module: str) -> None:
    """Commands about keys, status and help start in a fraction of the time."""
    code = f"import sys, {module}; print('jax' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
