"""Seventh station: levels are scheduled, parameters updated, progress kept."""
