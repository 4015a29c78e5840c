"""The front door: from a model or a log density to weighted particles and log Z. It refuses to
train by rules of its own: samplers are trained by `train`.
"""
