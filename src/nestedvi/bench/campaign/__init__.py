"""Many targets with a known log Z, of the kinds that users have: is every answer right, or does it
say that it is not? It refuses to judge by anything but the known value.
"""
