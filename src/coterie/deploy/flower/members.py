"""Which of Flower's nodes is which client of the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.deploy.plan import Plan


class Members:
    """Which of Flower's nodes is which client of the plan: by the public key it proved to have,
    never by what it says of itself.
    """

    def __init__(self, plan: Plan, keys: Path, say: Callable[[str], None]) -> None:
        self.names = (
            {name: k for k, name in enumerate(plan.clients)}
            if not isinstance(plan.clients, int)
            else {}
        )
        self.keys, self.say = keys, say
        self.refused: frozenset[int] = frozenset()
        self.present: dict[int, tuple[int, str]] = {}
        """Client → Flower's node, and since when it is there."""
        self._books = (keys / "nodes.json").is_file()
        self._revoked: Any = None

    def look(self, nodes: Iterable[Any]) -> None:
        """Who is there now, and who is revoked now."""
        from coterie.deploy.keys import authority as identities

        if self._books:
            allowed = identities.flower_keys(self.keys)
            names = {pem(key): name for name, key in allowed.items()}
            refused = {k for name, k in self.names.items() if name not in allowed}
            found = [(names.get(bytes(node.public_key)), node) for node in nodes]
        # a hub without the operator's books: the names its nodes were registered under, and the
        # federation's revocation list
        else:
            if self._revoked is None:
                self._revoked = identities.NodeIdentity.load(self.keys).revocations(self.say)
            refused = {k for name, k in self.names.items() if name in self._revoked.revoked_names()}
            found = [(node.name, node) for node in nodes]
        for k in sorted(refused - self.refused):
            self.say(
                f"{self.name(k)} is revoked, expired or was never issued keys: it is not asked and"
                " does not count from now on."
            )
        self.refused = frozenset(refused)
        mine = [(self.names[name], node) for name, node in found if name in self.names]
        self.present = {
            k: (node.node_id, node.last_activated_at) for k, node in mine if k not in refused
        }

    def name(self, k: int) -> str:
        return next(name for name, number in self.names.items() if number == k)


def pem(openssh: str) -> bytes:
    """A public key as Flower keeps it."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_public_key(openssh.encode())
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
