"""Channels: streams of bytes between a user's command and a task."""
