"""Figures and the HTML report.

Charts are Altair's, because one specification gives the interactive page and the PNG, SVG or PDF (through vl-convert,
which needs neither a browser nor the network). Results come as tidy pandas frames, see `frames`.
"""

from predbn.common import ReportError, needs_extra

with needs_extra("eval"):
    import altair as _altair  # noqa: F401
    import jinja2 as _jinja2  # noqa: F401
    import vl_convert as _vl_convert  # noqa: F401

from . import figures
from .examination_page import write_examination
from .figure import Chart, Figure, FigureVariant, save_variants, variant_file_names
from .figures import (
    SEVERITY_AXIS,
    SEVERITY_STYLES,
    XAxis,
    box_chart,
    confidence_bins,
    curves,
    densities,
    heatmap,
    scatter,
)
from .frames import add_series, check_results, display_name, gain_over_baseline
from .headline import headline
from .loggers import find_logger, log_results
from .metric_info import metric_info, sort_metrics
from .results_page import write_results
from .save import check_suffix, save, write_file
from .shift_page import strategies_table, write_shift
from .strategy_info import strategy_label
from .style import GREY, HUES, SeriesStyle
from .tables import by_severity
from .templates import render_page

__all__ = [
    "GREY",
    "HUES",
    "SEVERITY_AXIS",
    "SEVERITY_STYLES",
    "Chart",
    "Figure",
    "FigureVariant",
    "ReportError",
    "SeriesStyle",
    "XAxis",
    "add_series",
    "box_chart",
    "by_severity",
    "check_results",
    "check_suffix",
    "confidence_bins",
    "curves",
    "densities",
    "display_name",
    "figures",
    "find_logger",
    "gain_over_baseline",
    "headline",
    "heatmap",
    "log_results",
    "metric_info",
    "render_page",
    "save",
    "save_variants",
    "scatter",
    "sort_metrics",
    "strategies_table",
    "strategy_label",
    "variant_file_names",
    "write_examination",
    "write_file",
    "write_results",
    "write_shift",
]
