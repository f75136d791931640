"""Clients' data as PyTorch has it: `Dataset`s and `DataLoader`s, read into a federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.federation import SPLITS, Federation, Task, pack

AT_ONCE = 256
Part = tuple[NDArray[Any], NDArray[Any]]


def _read(where: str, given: Any) -> Part | None:
    """All samples of a Dataset or DataLoader as two arrays; None where there are none."""
    from torch.utils.data import DataLoader, Dataset

    if given is None:
        return None
    if isinstance(given, DataLoader):
        if given.drop_last:
            raise InvalidInput(
                f"{where} is a DataLoader with drop_last=True, which leaves samples out; give its"
                " dataset, or drop_last=False."
            )
        loader = given
    elif isinstance(given, Dataset):
        loader = DataLoader(given, batch_size=AT_ONCE)
    else:
        raise InvalidInput(
            f"{where} is of type {type(given).__name__}, but must be a torch.utils.data.Dataset or"
            " DataLoader, or None."
        )
    xs, ys = [], []
    try:
        for x, y in loader:
            xs.append(np.asarray(x))
            ys.append(np.asarray(y))
    except (TypeError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"{where} does not give pairs (input, target) of tensors of one shape ({reason})."
        ) from error
    return (np.concatenate(xs), np.concatenate(ys)) if xs else None


def from_datasets(
    clients: Sequence[Any],
    *,
    name: str = "datasets",
    task: Task | None = None,
    classes: int | None = None,
) -> Federation:
    """A federation from PyTorch data: for every client (train, validation, test), or (train, test),
    or only train; None where there is nothing.

    Each may be a `Dataset` or a `DataLoader` and is gone through once, here: transforms are applied
    once, and a loader's batches are joined. Which samples form a batch is then coterie's seeded
    order, the same in simulation and on a deployed client. (A loader that augments anew in every
    epoch can be used on a single client: `coterie.LoaderClient`.) Whole-number targets are classes,
    others a regression, unless `task` says so.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            "PyTorch is not installed, but this needs it: pip install 'coterie[torch]'."
        ) from error
    parts: dict[str, list[Part | None]] = {split: [] for split in SPLITS}
    for k, given in enumerate(clients):
        whole = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(whole) not in (1, 2, 3):
            raise InvalidInput(
                f"client {k} has {len(whole)} data sets, but must have 1 (train), 2 (train, test)"
                " or 3 (train, validation, test)."
            )
        train, validation, test = (
            whole if len(whole) == 3 else (whole[0], None, whole[1] if len(whole) == 2 else None)
        )
        for split, dataset in zip(SPLITS, (train, validation, test), strict=True):
            parts[split].append(_read(f"the {split} data of client {k}", dataset))
    found = [part for split in SPLITS for part in parts[split] if part is not None]
    if not found:
        raise InvalidInput(
            "a federation needs at least 1 client with training samples, but 0 were given."
        )
    x, y = found[0]
    for other, targets in found:
        if other.shape[1:] != x.shape[1:] or targets.shape[1:] != y.shape[1:]:
            raise InvalidInput(
                f"samples of shape {other.shape[1:]} with targets of shape {targets.shape[1:]} are"
                f" among samples of shape {x.shape[1:]} with targets of shape {y.shape[1:]}; they"
                " must be alike."
            )
    whole_numbers = all(np.issubdtype(targets.dtype, np.integer) for _, targets in found)
    task = task or ("classification" if whole_numbers else "regression")
    # Targets of the wrong kind are left as they are, for the federation to refuse.
    kind = (
        np.result_type(*(targets for _, targets in found))
        if not whole_numbers
        else np.dtype(np.int32 if task == "classification" else np.float32)
    )
    if task == "classification" and classes is None:
        classes = 1 + max(int(targets.max()) for _, targets in found)
    empty = (x[:0], y[:0].astype(kind))
    packed = [
        pack([empty if part is None else (part[0], part[1].astype(kind)) for part in parts[split]])
        for split in SPLITS
    ]
    return Federation(name, packed[0], packed[1], packed[2], task, classes or 0)
