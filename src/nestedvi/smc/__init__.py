"""Adaptive SMC from a base to a target: along temperatures, or along thresholds (nested sampling)
where temperatures show a first-order transition. The move is an argument.

It refuses to learn a base. An adaptive run tunes moves, metric and path from its own particles, and
its Ẑ is only nearly unbiased; fresh particles that follow it have an unbiased one.
"""
