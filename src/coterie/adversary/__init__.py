"""Attacks on messages and on data.

The merges that withstand some of them are in coupling.merges.
"""

from coterie.adversary import labels, messages
from coterie.adversary.base import ATTACKS, Attack, Threat, draw_malicious, get_attack

__all__ = ["ATTACKS", "Attack", "Threat", "draw_malicious", "get_attack", "labels", "messages"]
