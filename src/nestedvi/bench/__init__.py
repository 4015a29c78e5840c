"""Measurements for comparison: speed of a training step, errors where log Z is known. Tests refuse
to assert them: they are a machine's, not the code's.
"""
