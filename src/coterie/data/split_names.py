"""Splits under the names that others give them: what PFLlib and flwr-datasets call a split is taken
for ours (docs/glossary.md has the table).
"""

from __future__ import annotations

ALIASES = {
    "pathological": "labels",  # flwr-datasets: PathologicalPartitioner
    "pat": "labels",  # PFLlib
    "dir": "dirichlet",  # PFLlib
    "quantity-skew": "quantity",
}
"""Name elsewhere → our name of the split."""


def ours(split: object) -> object:
    """Our name of a split.

    >>> ours("pathological"), ours("dirichlet")
    ('labels', 'dirichlet')
    """
    return ALIASES.get(split, split) if isinstance(split, str) else split
