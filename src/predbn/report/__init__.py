"""Figures and the HTML report.

Altair, because one chart specification gives the interactive page and the PNG, SVG or PDF (through vl-convert, which
needs neither a browser nor the network); pandas, because results are tidy tables.
"""

from predbn.report import figures
from predbn.report.diagnosis import write_diagnosis
from predbn.report.errors import ReportError
from predbn.report.headline import headline
from predbn.report.page import write
from predbn.report.panels import save_all
from predbn.report.save import save

__all__ = ["ReportError", "figures", "headline", "save", "save_all", "write", "write_diagnosis"]
