"""First station: densities score one particle z, normalised or not."""
