"""Counts, bounds and radii: what a tabular learner knows."""
