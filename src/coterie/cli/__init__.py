"""The command line. `main` is the entry point."""

from coterie.cli.main import app, main

__all__ = ["app", "main"]
