"""report.html: a run on one page that needs no network."""

from training.report.page import write_report
from training.report.record import LayoutRow, Mesh, NextCommand, Outcome, ParameterRow, Report

__all__ = ["LayoutRow", "Mesh", "NextCommand", "Outcome", "ParameterRow", "Report", "write_report"]
