"""Fourth station: particles in bulk. Weights, resampling, ancestors."""
