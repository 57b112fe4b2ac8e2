"""The journal, the audit log and crash notes of a live node."""
