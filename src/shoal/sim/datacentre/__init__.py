"""A data centre in virtual time: the machines of live nodes on a modelled fabric.

`scenario` is what people write, `running` makes worlds of it and lets them run, and
`report` shows what came of it. Nothing here prints.
"""
