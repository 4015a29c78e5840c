"""Quality of a sampler: it is run again with its parameters frozen.

It refuses to train.
"""
