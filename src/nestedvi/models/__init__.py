"""Concrete models that the experiments assemble. They refuse to train or to evaluate."""
