"""Files: results and checkpoints, written whole or not at all, checked when they are read.

It stores arrays and JSON with the command, versions, device and seed that made them. It refuses to
know what they mean.
"""
