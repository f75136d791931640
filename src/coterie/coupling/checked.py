"""What a matrix must be like to be a graph's."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.core.errors import InvalidInput, shown

PARTS = ("indptr", "indices", "data")


def symmetric(weights: Any) -> sp.csr_array:
    """Weights ≥ 0 between clients, symmetric and without self-loops; refuses any other."""
    try:
        a = sp.csr_array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"the graph's matrix is {shown(weights)}, but must be a square table of numbers."
        ) from None
    if a.ndim != 2:
        raise InvalidInput(
            f"the graph's matrix has {a.ndim} dimensions, but must be a square table of numbers."
        )
    if a.shape[0] != a.shape[1]:
        raise InvalidInput(
            f"the graph's matrix has the shape {a.shape[0]}×{a.shape[1]}, but must be square."
        )
    a.eliminate_zeros()
    a.sort_indices()
    if not np.isfinite(a.data).all():
        raise InvalidInput(
            "the graph has a weight that is NaN or infinite; weights must be finite numbers ≥ 0."
        )
    if len(a.data) and a.data.min() < 0:
        k = int(np.argmin(a.data))
        row = int(np.searchsorted(a.indptr, k, "right")) - 1
        raise InvalidInput(
            f"the graph has the weight {a.data[k]:g} between clients {row} and {a.indices[k]};"
            " weights must be ≥ 0."
        )
    diagonal = np.flatnonzero(a.diagonal())
    if len(diagonal):
        raise InvalidInput(
            f"the graph couples client {diagonal[0]} to itself; its matrix must have a zero"
            " diagonal."
        )
    b = a.T.tocsr()
    b.sort_indices()
    same = all(np.array_equal(getattr(a, p), getattr(b, p)) for p in PARTS)
    gap = None if same else sp.coo_array(abs(a - b))
    if gap is not None and gap.nnz and gap.data.max() > 1e-9 * max(1.0, a.data.max()):
        i = int(np.argmax(gap.data))
        k, j = int(gap.coords[0][i]), int(gap.coords[1][i])
        raise InvalidInput(
            f"the graph is not symmetric: the weight from client {k} to {j} is {a[k, j]:g}, but"
            f" from {j} to {k} it is {a[j, k]:g}."
        )
    return a
