"""Section 5.1: annealing between a Gaussian and eight modes on a circle."""
