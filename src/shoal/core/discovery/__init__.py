"""Find workers: announcements, DHT look-ups, load gossip and gates."""
