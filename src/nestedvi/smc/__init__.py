"""Adaptive tempered SMC: one loop over temperatures, the move is an argument.

It refuses to learn a base. An adaptive run tunes moves, metric and temperatures from its own
particles, and its Ẑ is only nearly unbiased; fresh particles that follow it have an unbiased one.
"""
