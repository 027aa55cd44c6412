"""The report of a sweep of tabular agents."""
