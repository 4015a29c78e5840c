"""One level as a pure function, and the loop over levels. It refuses to know what is minimised."""
