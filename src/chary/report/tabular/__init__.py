"""The report of a tabular sweep: its claims, charts, tables and page."""

from chary.report.tabular.page import parts_of

__all__ = ["parts_of"]
