"""What an attack is: some clients, fixed by the seed, send something else than they computed, or
train on data that was tampered with.

Who lies is drawn by the seed alone, and the malicious clients at a smaller fraction are among those
at a larger one, so that runs can be compared. Attacks act on messages as they arrive: a malicious
client may encode whatever it likes. What malicious clients keep for themselves stays honest; nobody
looks at it, since scores are over honest clients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.options import Options, chosen, option, registered
from coterie.core.randomness import Role, per_client, role_key, shuffled

ATTACKS: dict[str, type[Attack]] = {}
A = TypeVar("A", bound="Attack")


class Sight(NamedTuple):
    """What an attacker sees: all messages of the round, stacked along axis 0, and who lies; `key`
    is the round's.
    """

    messages: Any
    malicious: Any
    key: Any
    seen: tuple[Any, Any] | None = None
    """The messages of the round and who of them lies, where these are not `messages`,
    `malicious`.
    """

    @property
    def of_the_round(self) -> tuple[Any, Any]:
        return (self.messages, self.malicious) if self.seen is None else self.seen

    @property
    def honest_mean(self) -> Any:
        messages, _ = self.of_the_round
        return jax.tree.map(lambda m: jnp.tensordot(self._share(m), m, 1), messages)

    @property
    def honest_deviation(self) -> Any:
        messages, _ = self.of_the_round
        return jax.tree.map(
            lambda m, c: jnp.sqrt(jnp.tensordot(self._share(m), jnp.square(m - c), 1)),
            messages,
            self.honest_mean,
        )

    def _share(self, m: Any) -> Any:
        _, malicious = self.of_the_round
        honest = (~malicious).astype(m.dtype)
        return honest / jnp.maximum(honest.sum(), 1)

    def normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.random.normal(self.key, shape, dtype)

    def per_message(self) -> Any:
        """A standard normal number for each message."""
        return self.normal(self.malicious.shape, jax.tree.leaves(self.messages)[0].dtype)


def each(numbers: Any, leaf: Any) -> Any:
    """A number per message, in the shape of a leaf of all of them."""
    return numbers.reshape(-1, *([1] * (leaf.ndim - 1)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack(Options):
    """Shared by all attacks: how many lie, and when."""

    summary: ClassVar[str] = ""
    on_data: ClassVar[bool] = False
    """True when the attack tampers with training data, too."""

    fraction: float = option(
        0.2, "share of the clients that lie (rounded to whole clients)", low=0, high=1
    )
    start: int = option(0, "the first round of the attack", low=0)
    stop: int | None = option(None, "the round before which it ends; nothing: never", low=0)

    def lies(self, sight: Sight) -> Any:
        """What a malicious client sends in the place of each message, stacked like the messages."""
        return sight.messages

    def poisoned(self, y: NDArray[Any], classes: int, rng: np.random.Generator) -> NDArray[Any]:
        """The labels that a malicious client trains on in the place of its own."""
        return y

    def active(self, t: Any) -> Any:
        return (t >= self.start) & (True if self.stop is None else t < self.stop)

    def apply(self, messages: Any, malicious: Any, seed: Any, t: Any) -> Any:
        """The messages of a round with the lies among them."""
        sight = Sight(messages, malicious, jax.random.fold_in(role_key(seed, Role.ATTACK), t))
        telling = malicious & self.active(t)
        return jax.tree.map(
            lambda m, lie: jnp.where(each(telling, m), lie, m), messages, self.lies(sight)
        )

    def stale(self, last: Any, client: Any, seen: tuple[Any, Any], seed: Any, t: Any) -> Any:
        """What arrives in round t of a malicious client that does not take part in it, in the
        place of its last message.

        It depends on the client and on what was sent in the round (`seen`), and not on who else is
        listened to.
        """
        key = per_client(role_key(seed, Role.ATTACK), t, client)
        alone = jax.tree.map(lambda m: m[None], last)
        lies = self.lies(Sight(alone, jnp.ones(1, bool), key, seen))
        return jax.tree.map(lambda m, lie: jnp.where(self.active(t), lie[0], m), last, lies)


def draw_malicious(seed: int, clients: int, fraction: float) -> NDArray[np.bool_]:
    """Who lies, by client; sets for larger fractions include those for smaller ones."""
    count = round(float(fraction) * clients)
    malicious = np.zeros(clients, bool)
    malicious[np.asarray(shuffled(seed, Role.ATTACK, clients))[:count]] = True
    return malicious


class Threat(NamedTuple):
    """An attack on a run: which, and who lies."""

    attack: Attack
    malicious: Any


@dataclass_transform(frozen_default=True, kw_only_default=True)
def attack(name: str) -> Callable[[type[A]], type[A]]:
    """Register an attack under its name for TOML, Python and the command line."""
    return registered(ATTACKS, name)


def get_attack(name: str, options: dict[str, Any] | None = None) -> Attack:
    """A registered attack with its options from plain values."""
    return chosen(ATTACKS, "the attack", name, options)
