"""What is fitted: mixtures, directions, bases and temperatures to particles, modes to a density.

It refuses to run a sampler. Particles are given to it, or are independent draws from a base.
"""
