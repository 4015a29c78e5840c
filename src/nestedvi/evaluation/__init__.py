"""Quality of a sampler with frozen parameters."""
