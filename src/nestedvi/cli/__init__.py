"""The command line, one file a group of commands: arguments become configurations.

It refuses to compute, and it has no defaults of its own: help reads those of the configurations.
"""
