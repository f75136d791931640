"""The command line. `start` is the entry point."""

from coterie.cli.main import app, main, start

__all__ = ["app", "main", "start"]
