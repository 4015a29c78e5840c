"""Adaptive tempered SMC."""
