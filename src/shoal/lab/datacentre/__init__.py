"""A data centre in virtual time: the machines of live nodes on a modelled fabric.

`scenario` is the file people write, `settings` the same in numbers. `data_centre` runs
one world of it, and `comparison` all of them. Nothing here prints.
"""
