"""Figures from arrays; the only home of matplotlib."""
