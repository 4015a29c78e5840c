"""Measurements of speed and of errors where log Z is known."""
