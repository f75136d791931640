"""Certificates of a public key infrastructure of the user's own."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from coterie.core.errors import InvalidInput, unknown
from coterie.deploy.keys.authority import ROLES
from coterie.deploy.keys.files import fill_folder, read_bytes, writable
from coterie.deploy.keys.identity import OWN, NodeIdentity


def bring(
    folder: Path, certificate: Path, key: Path, ca: Path, role: str, *, crl: Path | None = None
) -> NodeIdentity:
    """Make a node's folder of keys from files in PEM form, after all checks that there are.

    `ca` is the certificate of the CA that issued this one directly; it may be below others. A
    folder of an earlier import is replaced at once, which is how such keys are renewed.
    """
    if role not in ROLES:
        raise unknown("the role", role, ROLES)
    given = {"node.pem": certificate, "node.key": key, "ca.pem": ca, "crl.pem": crl}
    files = {name: (read_bytes(path), 0o600) for name, path in given.items() if path is not None}
    files[OWN] = ((json.dumps({"role": role}) + "\n").encode(), 0o600)
    if folder.exists() and not (folder / OWN).is_file() and any(folder.iterdir()):
        raise InvalidInput(
            f"the folder {str(folder)!r} is not empty and was not made by `coterie keys import`:"
            " choose another."
        )
    with writable(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        trial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.trial.", dir=folder.parent))
        try:
            fill_folder(trial / "node", files)
            try:
                NodeIdentity.load(trial / "node")
            except InvalidInput as error:
                sentence = str(error)
                for name, path in given.items():
                    sentence = sentence.replace(str(trial / "node" / name), str(path))
                raise InvalidInput(sentence) from None
        finally:
            shutil.rmtree(trial, ignore_errors=True)
        fill_folder(folder, files)
    return NodeIdentity.load(folder)
