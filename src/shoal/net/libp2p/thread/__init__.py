"""The thread in which libp2p runs, and the ways into and out of it."""
