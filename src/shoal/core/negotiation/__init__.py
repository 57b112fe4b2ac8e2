"""Winning leases at workers, and keeping them."""
