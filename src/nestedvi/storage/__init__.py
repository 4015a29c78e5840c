"""What is kept on disk: result files and checkpoints, whole or not at all. It refuses to know what
the arrays mean.
"""
