"""The report of a sweep of the deep learner: its claims, charts, tables and page."""

from chary.report.deep.page import parts_of

__all__ = ["parts_of"]
