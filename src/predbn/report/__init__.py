"""Figures and the HTML report.

Altair, because one chart specification gives the interactive page and the PNG, SVG or PDF (through vl-convert, which
needs neither a browser nor the network); pandas, because results are tidy tables.
"""

from predbn.common import ReportError

from . import figures
from .card import card_html
from .diagnosis import write_diagnosis
from .figures import Places, box_chart, confidence_bins, curves, densities, heatmap, scatter
from .figures.scatter import SEVERITIES as SEVERITY_COLOURS
from .frames import checked as check_frame
from .frames import readable as readable_labels
from .frames import with_series
from .gains import gains
from .headline import headline
from .looks import GREY, HUES, Look
from .meanings import meaning
from .meanings import ordered as order_metrics
from .page import write
from .panels import Chart, Panel, Variant, file_names, save_all, save_panels
from .save import save, suffix_of
from .save import store as write_file
from .shell import figure_html
from .shell import render as render_page
from .tables import by_severity

__all__ = [
    "GREY",
    "HUES",
    "SEVERITY_COLOURS",
    "Chart",
    "Look",
    "Panel",
    "Places",
    "ReportError",
    "Variant",
    "box_chart",
    "by_severity",
    "card_html",
    "check_frame",
    "confidence_bins",
    "curves",
    "densities",
    "figure_html",
    "figures",
    "file_names",
    "gains",
    "headline",
    "heatmap",
    "meaning",
    "order_metrics",
    "readable_labels",
    "render_page",
    "save",
    "save_all",
    "save_panels",
    "scatter",
    "suffix_of",
    "with_series",
    "write",
    "write_diagnosis",
    "write_file",
]
