"""The monitor: nodes and jobs on one screen, a job with its output and its curves.

`command` is the command itself, `watching` polls the node, `screens` and `job_screen`
show the result. Other commands import nothing from here: textual is slow to import.
"""
