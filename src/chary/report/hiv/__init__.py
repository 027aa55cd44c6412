"""The report of a sweep of the deep learner: its own figures, tables and parts of the page."""
