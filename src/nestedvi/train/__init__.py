"""Training: the objective, the gradients of levels in an order of execution, guarded updates, and
one loop for everything that learns.

Only the loop knows checkpoints, clocks and terminals; a gradient is a pure function of a key and
the parameters. The page of a training is `plot`'s. It refuses to evaluate: what a step reports is
of the particles it trained on.
"""
