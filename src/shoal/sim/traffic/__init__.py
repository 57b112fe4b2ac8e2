"""Simulated traffic besides jobs: mail, calls, API requests and joining."""
