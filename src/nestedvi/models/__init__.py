"""Concrete models that experiments assemble: networks and generative models. They refuse to train or to evaluate."""
