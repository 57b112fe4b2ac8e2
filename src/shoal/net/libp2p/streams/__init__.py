"""Links over libp2p streams, and limits on relayed circuits."""
