"""Fabrics: hosts, switches and cables; paths over them, and how flows share them.

Nothing here knows of jobs or messages. All costs are whole numbers, so that two paths
cost the same or do not, and the same fabric has the same routes everywhere.
"""
