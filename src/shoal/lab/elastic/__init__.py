"""Elastic training jobs on GPUs of several kinds: their goodput, and who gets what."""
