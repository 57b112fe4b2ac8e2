"""The page of a node, for browsers: topology, jobs, curves, output, and some buttons.

`listening` waits for the first visitor and imports nothing else before. `connection`
speaks HTTP/1.1, `guarding` says who may ask, `site` what is answered, and `streams`
what is told as it happens. All that is seen is in `static`, which has no secrets: every
answer about the node needs its token.
"""
