"""Finding peers by libp2p: DHT, mDNS, mesh and gossip."""
