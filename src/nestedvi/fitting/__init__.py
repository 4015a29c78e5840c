"""What is fitted to particles: mixtures, directions, bases, temperatures."""
