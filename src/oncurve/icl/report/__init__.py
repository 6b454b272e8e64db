"""The page of a run of the laboratory, and its drawings as pictures."""

from oncurve.icl.report.page import render_lab_report

__all__ = ["render_lab_report"]
