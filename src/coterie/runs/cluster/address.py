"""Where a Dask scheduler is, and who may talk to it.

Whoever reaches a scheduler can run code on its workers: what is sent between them is pickled. So
only loopback is spoken to in the clear, unless the user says that the network is trusted.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.hosts import is_here

ADDRESS = r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[^\s:/]+):(\d{1,5})"
KEYS = {"tls_ca_file": "ca.pem", "tls_client_cert": "node.pem", "tls_client_key": "node.key"}
"""What Dask calls the files of a folder that `coterie keys issue` makes."""


@dataclasses.dataclass(frozen=True)
class Scheduler:
    """`given` is an address or a scheduler file; `keys` a folder with certificates, without which
    Dask's own settings hold; `insecure` allows plain TCP to other machines.
    """

    given: str
    keys: Path | None = None
    insecure: bool = False

    @property
    def address(self) -> str:
        """The address, if it may be used."""
        address = self.given
        if address.endswith(".json"):
            address = _from_file(Path(address))
        found = re.fullmatch(ADDRESS, address)
        if found is None:
            raise InvalidInput(
                f"--cluster is {address!r}, but must be the address of a Dask scheduler"
                " (tcp://host:port, tls://host:port) or its scheduler file (.json)."
            )
        if found[1] == "tls":
            if self.insecure:
                raise InvalidInput(
                    f"--insecure is for plain TCP, but --cluster is {address!r}; leave it out."
                )
        elif self.keys is not None:
            raise InvalidInput(
                f"--cluster-keys is given, but --cluster is {address!r}, where nothing is"
                " encrypted; give tls://host:port."
            )
        elif not is_here(found[2]) and not self.insecure:
            raise InvalidInput(
                f"--cluster is {address!r}, which is another machine and not encrypted, and whoever"
                " reaches a Dask scheduler can run code on it; use tls://host:port, or say"
                " --insecure if you trust the network."
            )
        return address

    def security(self) -> Any:
        """Dask's description of the certificates, or None for plain TCP."""
        if not self.address.startswith("tls:"):
            return None
        from coterie.runs.cluster.library import Security

        if self.keys is not None:
            files = {name: self.keys / file for name, file in KEYS.items()}
            for file in files.values():
                if not file.is_file():
                    raise InvalidInput(
                        f"--cluster-keys is {str(self.keys)!r}, but there is no {file.name} in it;"
                        " `coterie keys issue` makes such a folder."
                    )
            given = {name: str(file) for name, file in files.items()}
            return Security(require_encryption=True, **given)
        own: Any = Security(require_encryption=True)
        if own.tls_ca_file is None or own.tls_client_cert is None:
            raise InvalidInput(
                f"--cluster is {self.given!r}, but there is no certificate for it; give a folder"
                " with --cluster-keys, or Dask's settings distributed.comm.tls.ca-file and"
                " distributed.comm.tls.client.cert."
            )
        return own


def _from_file(file: Path) -> str:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no address"
        raise InvalidInput(
            f"--cluster is {str(file)!r}, which is no scheduler file of Dask's: {why}."
        ) from None
