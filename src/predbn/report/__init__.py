"""Figures and the HTML report.

Charts are Altair's, because one specification gives the interactive page and the PNG, SVG or PDF (through vl-convert,
which needs neither a browser nor the network). Results come as tidy pandas frames, see `frames`.
"""

from predbn.common import ReportError

from . import figures
from .diagnosis_page import write_diagnosis
from .figure import Chart, Figure, FigureVariant, save_variants, variant_file_names
from .figures import SEVERITY_STYLES, XAxis, box_chart, confidence_bins, curves, densities, heatmap, scatter
from .frames import add_series, check_results, display_name, gain_over_baseline
from .headline import headline
from .metric_info import metric_info, sort_metrics
from .results_page import write
from .save import check_suffix, save, write_file
from .style import GREY, HUES, SeriesStyle
from .tables import by_severity
from .templates import card_html, figure_html, render_page

__all__ = [
    "GREY",
    "HUES",
    "SEVERITY_COLOURS",
    "SEVERITY_STYLES",
    "Chart",
    "Figure",
    "FigureVariant",
    "Look",
    "Panel",
    "Places",
    "ReportError",
    "SeriesStyle",
    "Variant",
    "XAxis",
    "add_series",
    "box_chart",
    "by_severity",
    "card_html",
    "check_frame",
    "check_results",
    "check_suffix",
    "confidence_bins",
    "curves",
    "densities",
    "display_name",
    "figure_html",
    "figures",
    "file_names",
    "gain_over_baseline",
    "gains",
    "headline",
    "heatmap",
    "meaning",
    "metric_info",
    "order_metrics",
    "readable_labels",
    "render_page",
    "save",
    "save_panels",
    "save_variants",
    "scatter",
    "sort_metrics",
    "suffix_of",
    "variant_file_names",
    "with_series",
    "write",
    "write_diagnosis",
    "write_file",
]

Look = SeriesStyle  # until its users are changed
Panel = Figure  # until its users are changed
Places = XAxis  # until its users are changed
SEVERITY_COLOURS = SEVERITY_STYLES  # until its users are changed
Variant = FigureVariant  # until its users are changed
check_frame = check_results  # until its users are changed
file_names = variant_file_names  # until its users are changed
gains = gain_over_baseline  # until its users are changed
meaning = metric_info  # until its users are changed
order_metrics = sort_metrics  # until its users are changed
readable_labels = display_name  # until its users are changed
save_panels = save_variants  # until its users are changed
suffix_of = check_suffix  # until its users are changed
with_series = add_series  # until its users are changed
