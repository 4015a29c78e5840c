"""Many independent cells of one experiment: each computed once, kept, and shown while it runs. It
refuses to know what a cell computes.
"""
