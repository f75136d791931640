"""How much each client counts in a mean by samples, when its number of samples is its own claim.

A client that says it has 2⁴⁰ samples would be the mean. What a plan says of a client (`samples`) is
the most that it counts for. Of clients of whom it says nothing, none counts for more than all that
claim fewer together: half, if one of them lies. Claims up to the median are taken as they are. Both
are said in the log. Claims of fewer than three clients cannot be told apart, and are not cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from coterie.deploy.plan import Plan

FEW = 3


def counted(claims: Mapping[int, int], most: Mapping[int, int]) -> dict[int, int]:
    """What each client counts for: `most` is what the plan says, of those of whom it says it.

    >>> counted({0: 100, 1: 150, 2: 1 << 40}, {}), counted({0: 10, 1: 50, 2: 900}, {2: 800})
    ({0: 100, 1: 150, 2: 250}, {0: 10, 1: 50, 2: 800})
    """
    fair = {k: min(claim, most.get(k, claim)) for k, claim in claims.items()}
    rising, total = sorted(fair, key=lambda k: (fair[k], k)), 0
    for i, k in enumerate(rising):
        if k not in most and len(fair) >= FEW and i > (len(fair) - 1) // 2:
            fair[k] = min(fair[k], total)
        total += fair[k]
    return fair


class Weights:
    """The weights of a run's merges; says once of each claim that it is cut."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.names = plan.clients if not isinstance(plan.clients, int) else ()
        self.most = {plan.number(name): most for name, most in plan.samples.items()}
        self.say, self.told = say, dict[int, int]()

    def of(self, senders: Collection[int], claims: Mapping[int, int]) -> list[float]:
        """Of the senders of a round; `claims`: what all clients said so far."""
        fair = counted(claims, self.most)
        for k in senders:
            if fair[k] < claims[k] and self.told.get(k) != claims[k]:
                self.told[k] = claims[k]
                why = (
                    "more than the plan says"
                    if k in self.most
                    else "more than all that have fewer together, and the plan's `samples` does not"
                    " name it"
                )
                self.say(
                    f"{self.names[k]} says that it has {claims[k]} samples, {why}; it counts as"
                    f" {fair[k]}."
                )
        return [float(fair[k]) for k in senders]
