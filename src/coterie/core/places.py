"""Where coterie keeps things of its own on a machine.

Imports no JAX: many commands need not wait for it.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """The user's cache: COTERIE_CACHE, or what the system uses (e.g. ~/.cache/coterie)."""
    own = os.environ.get("COTERIE_CACHE")
    if own:
        return Path(own).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("coterie", appauthor=False)
