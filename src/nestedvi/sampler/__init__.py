"""A nested importance sampler: one level as a pure function, and the loop over levels.

It decides which gradients flow within a level. It refuses to know what is minimised.
"""
