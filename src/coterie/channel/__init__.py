"""How messages become bytes (channels), how both ends stay in step (link), and the byte ledger."""

from coterie.channel import dgc, lbgm, plain, quantised, sketch, sparse, subspace
from coterie.channel.base import CHANNELS, Channel, get_channel
from coterie.channel.codec import PlainCodec, size_of
from coterie.core.ledger import Ledger

PLAIN = plain.Plain()
"""What everything goes through unless asked otherwise: every number as it is."""

__all__ = [
    "CHANNELS",
    "PLAIN",
    "Channel",
    "Ledger",
    "PlainCodec",
    "dgc",
    "get_channel",
    "lbgm",
    "plain",
    "quantised",
    "size_of",
    "sketch",
    "sparse",
    "subspace",
]
