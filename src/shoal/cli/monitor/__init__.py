"""The monitor: nodes and jobs on one screen, a job with its output and its curves.

`command` is what the shell calls, `watching` gathers what is to be seen, `screens` and
`job_screen` show it. Nothing here is imported by other commands: textual is slow.
"""
