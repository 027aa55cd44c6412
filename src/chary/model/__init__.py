"""Counts, bounds and radii: the knowledge of a tabular learner."""
