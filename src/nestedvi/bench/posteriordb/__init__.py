"""The posteriors of posteriordb through `sample`, compared with their reference draws.

It refuses to hold data or to tune anything: models are written as their authors wrote them, and
every one is answered with the defaults.
"""
