"""Concrete models that the experiments assemble."""
