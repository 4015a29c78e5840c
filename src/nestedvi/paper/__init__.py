"""The paper's experiments, a folder each: model, run, report."""
