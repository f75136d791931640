"""Where compiled programs are kept between processes.

Imports no JAX: many commands need not wait for it.
"""

from __future__ import annotations

import os
import sys

from coterie.core.places import cache_root


def use_users_cache() -> None:
    """Compiled programs are kept in the user's cache (COTERIE_CACHE, or what the system uses),
    unless COTERIE_NO_CACHE is set.
    """
    if os.environ.get("COTERIE_NO_CACHE"):
        return
    folder = cache_root() / "programs"
    if "jax" in sys.modules:
        from coterie.core.compilation import use_cache

        use_cache(folder)
        return
    # JAX reads these when it is imported; processes that this one starts inherit them.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
