"""A participant's identity while it runs: who is revoked, when it ends, and that it was renewed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coterie.core.errors import InvalidInput
from coterie.deploy.site import Site

if TYPE_CHECKING:
    from coterie.deploy.keys.identity import NodeIdentity

Stamp = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Passport:
    """A site's identity, if it has keys, and who is revoked."""

    identity: Any
    revocations: Any
    say: Callable[[str], None] = lambda sentence: None
    seen: set[Stamp | str] = dataclasses.field(default_factory=set)
    """What was looked at or said already: files of certificates, sentences."""

    @classmethod
    def of(cls, site: Site, say: Callable[[str], None]) -> Passport:
        if site.keys is None:
            say("no keys are given: plain TCP, without certificates, on this machine only.")
            return cls(None, None)
        from coterie.deploy.keys.authority import NodeIdentity

        return cls.shown(NodeIdentity.load(site.keys), say)

    @classmethod
    def shown(cls, identity: NodeIdentity, say: Callable[[str], None]) -> Passport:
        """Says so, if a certificate is about to end."""
        if warning := identity.warning():
            say(warning)
        return cls(identity, identity.revocations(say), say, {_stamp(identity), warning})

    def refused(self) -> frozenset[str]:
        """The names that are revoked, by a list that is read again when it changes."""
        return frozenset() if self.revocations is None else self.revocations.revoked_names()

    def newest(self) -> tuple[int, bytes] | None:
        """The list of the revoked and its number, to be passed on."""
        found = None if self.revocations is None else self.revocations.newest()
        return found if found and found[1] else None

    def check(self) -> None:
        """Raises InvalidInput when this site's own certificate is of no use any more.

        One that was renewed elsewhere serves until it expires: the new one may be on its way.
        """
        if self.identity is None:
            return
        name, serial = self.identity.name, self.identity.serial
        if datetime.now(UTC) >= self.identity.expires:
            raise InvalidInput(
                f"the certificate of {name!r} expired on"
                f" {self.identity.expires:%Y-%m-%d %H:%M} UTC; this participant stops: put a new"
                " one in its place and start again."
            )
        if self.revocations.refuses(name) or (
            self.revocations.refuses(serial) and serial not in self.revocations.superseded()
        ):
            raise InvalidInput(f"the certificate of {name!r} is revoked; this participant stops.")
        if warning := self.identity.warning():
            self._once(warning)  # which is another sentence every day
        if serial in self.revocations.superseded():
            self._once(
                f"the certificate of {name!r} was renewed, and the new one is not here yet: put it"
                f" into {self.identity.folder} before {self.identity.expires:%Y-%m-%d}."
            )

    def renewed(self) -> Passport | None:
        """With the certificate that was put in the place of this one, if there is a good one."""
        if self.identity is None or (stamp := _stamp(self.identity)) in self.seen:
            return None
        from coterie.deploy.keys.authority import NodeIdentity

        self.seen.add(stamp)
        try:
            fresh = NodeIdentity.load(self.identity.folder)
        except InvalidInput as error:
            self.seen.discard(stamp)  # it may be half copied: look again
            self._once(f"{error} The certificate read before stays in use.")
            return None
        if fresh.serial == self.identity.serial:
            return None
        if (fresh.name, fresh.role) != (self.identity.name, self.identity.role):
            self._once(f"the keys in {fresh.folder} are of {fresh.name!r} now; they are not used.")
            return None
        self.say(f"the certificate of {fresh.name!r} is new, until {fresh.expires:%Y-%m-%d}.")
        return Passport.shown(fresh, self.say)

    def _once(self, sentence: str) -> None:
        if sentence not in self.seen:
            self.seen.add(sentence)
            self.say(sentence)


def _stamp(identity: NodeIdentity) -> Stamp:
    """Of the files of a certificate and its key, as they are now."""
    found: list[int] = []
    for path in (identity.certificate, identity.key):
        try:
            facts = path.stat()
            found += [facts.st_mtime_ns, facts.st_size, facts.st_ino]
        except OSError:
            found.append(0)
    return tuple(found)
