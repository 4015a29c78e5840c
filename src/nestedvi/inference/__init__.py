"""The front door: from a model or a log density to weighted particles and log Z."""
