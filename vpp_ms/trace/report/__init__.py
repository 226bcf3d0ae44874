"""The report: runs read from disk, and their pictures as one HTML page that opens offline, or as
PNG files for papers. Both draw from the same `Figures`, so they never disagree."""

from vpp_ms.trace.report.figures import Figures
from vpp_ms.trace.report.page import render_page
from vpp_ms.trace.report.runs import ReportedRun, load_runs

__all__ = ["Figures", "ReportedRun", "load_runs", "render_page"]
