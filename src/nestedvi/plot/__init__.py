"""Figures from arrays. The drawing that several places share is here; an experiment's own figures
are in its folder. It refuses to compute anything but what a picture needs.
"""
