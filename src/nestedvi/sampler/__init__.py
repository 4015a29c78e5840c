"""Fifth station: one level as a pure function, and the loop over levels."""
