"""Quality of a sampler with frozen parameters, after training and before a report. It refuses to
train.
"""
