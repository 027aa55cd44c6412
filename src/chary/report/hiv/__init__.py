"""The report of an HIV sweep: its claims, charts, tables and page."""

from chary.report.hiv.page import parts_of

__all__ = ["parts_of"]
