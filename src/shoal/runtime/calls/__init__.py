"""Calls of functions: sessions of clients, pools of interpreters."""
