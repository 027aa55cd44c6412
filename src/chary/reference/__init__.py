"""Slow, plain NumPy twins of the planner: the oracle of the tests, and the place to start reading."""
