"""The replay engine: long traces against the live policies, without messages."""
