"""Adaptive tempered SMC: one loop over temperatures, the move is an argument.

It learns nothing. Moves, metric and temperatures are tuned from the particles as it runs, so that
it refuses to promise an unbiased Ẑ.
"""
