"""Measurements for comparison: speed of a training step, errors where log Z is known, answers
for other people's posteriors beside their references, evidences by two algorithms.

It refuses to assert: tests do.
"""
