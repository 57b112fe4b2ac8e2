"""Reaching peers: links, gossip and the DHT. Nothing here decides anything."""
