"""Charts of frames, and figures of an examination; one module per family."""

from .boxes import SEVERITY_AXIS, XAxis, box_chart, boxes
from .curves import SEVERITY_STYLES, curves, scatter
from .distributions import densities
from .examination import channels_of_layer, fit_by_layer, shift_by_layer
from .heatmap import heatmap
from .reliability import confidence_bins, reliability

__all__ = [
    "SEVERITY_AXIS",
    "SEVERITY_STYLES",
    "XAxis",
    "box_chart",
    "boxes",
    "channels_of_layer",
    "confidence_bins",
    "curves",
    "densities",
    "fit_by_layer",
    "heatmap",
    "reliability",
    "scatter",
    "shift_by_layer",
]
