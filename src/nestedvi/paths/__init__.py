"""Second station: paths give γ_{k-1} and γ_k, the densities on either side of level k."""
