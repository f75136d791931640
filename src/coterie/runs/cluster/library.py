"""What is used of the package distributed; a sentence says what to install when it is missing."""

from __future__ import annotations

from coterie.core.errors import InvalidInput

try:
    from distributed import Client, Future, Security, get_worker
except ImportError:
    raise InvalidInput(
        "--cluster needs the package distributed: pip install 'coterie[cluster]'."
    ) from None

__all__ = ["Client", "Future", "Security", "get_worker"]
