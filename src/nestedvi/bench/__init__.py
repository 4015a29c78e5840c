"""Measurements for comparison: speed of a training step, errors where log Z is known.

It refuses to assert: tests do.
"""
