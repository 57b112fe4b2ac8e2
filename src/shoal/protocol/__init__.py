"""The wire protocol: messages, their encoding, and the limits on both."""
