"""Charts: each function returns an Altair chart of frames or an examination; one module per family."""

from .boxes import SEVERITY_AXIS, XAxis, box_chart, boxes
from .curves import SEVERITY_STYLES, curves, scatter
from .distributions import densities
from .examination import channel_styles, channels_of_layer, fit_by_layer, fit_styles, shift_by_layer, shift_styles
from .heatmap import heatmap
from .reliability import confidence_bins, reliability

__all__ = [
    "SEVERITY_AXIS",
    "SEVERITY_STYLES",
    "XAxis",
    "box_chart",
    "boxes",
    "channel_styles",
    "channels_of_layer",
    "confidence_bins",
    "curves",
    "densities",
    "fit_by_layer",
    "fit_styles",
    "heatmap",
    "reliability",
    "scatter",
    "shift_by_layer",
    "shift_styles",
]
