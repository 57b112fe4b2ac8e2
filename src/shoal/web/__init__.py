"""The web page of a node: topology, jobs, curves, output, and a few actions.

`page` listens, and imports the rest when the first visitor comes. `guarding` authorises
requests, `site` answers them, and `streams` sends live updates; the HTTP server is in
`api/server`. The files in `static` are public and hold no secrets: every answer about
the node requires its token.
"""
