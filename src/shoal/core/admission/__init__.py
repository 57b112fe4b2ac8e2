"""Admission of new members: invitations, join requests, introductions."""
