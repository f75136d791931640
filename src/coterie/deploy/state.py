"""What a participant keeps on its own disk, in one file that is replaced atomically: arrays, bytes
and a few facts.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coterie.core.errors import InvalidInput
from coterie.core.files import writing


@dataclasses.dataclass
class Bundle:
    """`trees` are pytrees of arrays (the reader knows their shapes), `blobs` are bytes, `facts` is
    JSON.
    """

    trees: dict[str, Any] = dataclasses.field(default_factory=dict)
    blobs: dict[str, bytes] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Raises InvalidInput when the disk is full or the folder cannot be written; the old file
        then stays as it was.
        """
        arrays = {
            f"tree/{name}/{i:04d}": np.asarray(leaf)
            for name, tree in self.trees.items()
            for i, leaf in enumerate(jax.tree.leaves(tree))
        }
        arrays |= {
            f"blob/{name}": np.frombuffer(blob, np.uint8) for name, blob in self.blobs.items()
        }
        with writing(path) as temporary:
            try:
                save_file(
                    {k: np.asarray(v, order="C") for k, v in arrays.items()},
                    temporary,
                    metadata={"facts": json.dumps(self.facts, sort_keys=True)},
                )
            except SafetensorError as error:
                raise OSError(str(error)) from None

    @classmethod
    def load(cls, path: Path, like: dict[str, Any]) -> Bundle:
        """Read back; `like` gives the structure and shapes of the trees that are wanted. Trees that
        were not saved are left out.
        """
        try:
            with safe_open(path, "np") as f:
                names = f.keys()
                stored = {key: f.get_tensor(key) for key in names}
                facts = json.loads((f.metadata() or {})["facts"])
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise InvalidInput(
                f"{str(path)!r} cannot be read ({error}); it is not what a participant keeps, or it"
                " is damaged."
            ) from None
        trees = {}
        for name, template in like.items():
            leaves, structure = jax.tree.flatten(template)
            found = [stored.get(f"tree/{name}/{i:04d}") for i in range(len(leaves))]
            if leaves and found[0] is None:
                continue
            for mine, saved in zip(leaves, found, strict=True):
                if saved is None or saved.shape != tuple(mine.shape) or saved.dtype != mine.dtype:
                    raise InvalidInput(
                        f"{str(path)!r} holds arrays of other shapes than the plan asks for; it"
                        " belongs to another plan."
                    )
            trees[name] = jax.tree.unflatten(structure, [jnp.asarray(a) for a in found])
        blobs = {
            key[5:]: value.tobytes() for key, value in stored.items() if key.startswith("blob/")
        }
        return cls(trees, blobs, facts)
