"""Files: results and checkpoints, written whole or not at all, checked when they are read.

It stores arrays and JSON with the command, versions, device and seed that made them. JAX's cache of
compiled programs and the report of what is installed are here too. It refuses to know what the
files mean.
"""
