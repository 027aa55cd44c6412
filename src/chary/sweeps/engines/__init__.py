"""Engines: what plays the runs of a sweep."""
