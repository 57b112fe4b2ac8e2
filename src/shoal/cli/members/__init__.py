"""Commands about members, keys and secrets."""
