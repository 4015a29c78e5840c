"""The paper's experiments, a folder each: configuration, model, run, report, and a README.

A folder refuses to import another one. What two of them need belongs in the library.
"""
