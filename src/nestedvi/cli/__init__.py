"""Last station: the command line. Arguments become experiments; it has no defaults of its own."""
