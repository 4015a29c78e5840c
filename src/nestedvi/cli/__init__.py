"""The command line, one file a group of commands: arguments become configurations.

It refuses to compute. Its only defaults are about the run itself: where results go, how many
processes work, whether compiled programs are kept. Help reads all others from the configurations.
"""
