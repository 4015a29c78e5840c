"""The command line, last on the way: one file a group of commands. Arguments become configurations;
it has no defaults of its own, and help reads those of the configurations. It refuses to compute.
"""
