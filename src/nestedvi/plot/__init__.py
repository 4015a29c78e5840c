"""Figures and pages from arrays, drawn without a display.

It refuses to know models and samplers.
"""
