"""Targets with known normalisers: densities by name, their data and their log Z."""
