"""Eighth station: samplers rerun with frozen parameters. log Ẑ, ESS, standard errors, bounds."""
