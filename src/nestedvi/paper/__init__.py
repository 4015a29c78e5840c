"""The paper's experiments, a folder each: configuration, cells, what a cell computes, report, run.
What is not the paper's own is the library's: no general algorithm lives here.
"""
