"""Codecs and the byte ledger."""

from coterie.channel.codec import Codec, Identity, size_of
from coterie.channel.ledger import Ledger

__all__ = ["Codec", "Identity", "Ledger", "size_of"]
