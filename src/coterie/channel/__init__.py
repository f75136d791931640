"""How messages become bytes (channels), how both ends stay in step (link), and the byte ledger."""

from coterie.channel import plain
from coterie.channel.base import CHANNELS, Channel, get_channel
from coterie.channel.codec import Identity, size_of
from coterie.channel.ledger import Ledger

PLAIN = plain.Plain()
"""What everything goes through unless asked otherwise: every number as it is."""

__all__ = ["CHANNELS", "PLAIN", "Channel", "Identity", "Ledger", "get_channel", "plain", "size_of"]
