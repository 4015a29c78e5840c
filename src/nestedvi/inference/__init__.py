"""From a user's model or log density to weighted particles and log Z: `sample` and its methods.

It refuses to train by rules of its own: it puts together `smc`, `fitting`, `train` and `sampler`.
"""
