"""Section 5.2: learned heuristic factors in a hidden Markov model."""
