"""Peers, and a hub, over Zenoh."""
