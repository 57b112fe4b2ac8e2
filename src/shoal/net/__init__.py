"""Reach peers: links, gossip and the DHT. Nothing here makes decisions."""
