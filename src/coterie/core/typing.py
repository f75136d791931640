"""Aliases that say what an argument is where JAX lets it be many things."""

from __future__ import annotations

from typing import Any

PyTree = Any
"""Nested tuples, dictionaries and dataclasses of arrays."""
Key = Any
"""A JAX random key."""
Scalar = Any
"""A number, or a traced array without axes."""
Array = Any
"""A NumPy or JAX array, perhaps traced."""
