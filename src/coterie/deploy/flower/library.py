"""What is used of the package flwr; a sentence says what to install when it is missing."""

from __future__ import annotations

from coterie.core.errors import InvalidInput

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise InvalidInput(
        "the Flower app needs the package flwr: pip install 'coterie[flower]'."
    ) from None

__all__ = [
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Grid",
    "Message",
    "RecordDict",
    "ServerApp",
]
