"""Charts: each function returns an Altair chart of frames, a diagnosis or an examination; one module per family."""

from .boxes import SEVERITY_AXIS, XAxis, box_chart, boxes
from .curves import SEVERITY_STYLES, curves, scatter
from .diagnosis import confidence, depth, spectra
from .distributions import channels, densities
from .examination import channels_of_layer, data_styles, fit_by_layer, shift_by_layer
from .heatmap import heatmap
from .reliability import confidence_bins, reliability

__all__ = [
    "SEVERITY_AXIS",
    "SEVERITY_STYLES",
    "XAxis",
    "box_chart",
    "boxes",
    "channels",
    "channels_of_layer",
    "confidence",
    "confidence_bins",
    "curves",
    "data_styles",
    "densities",
    "depth",
    "fit_by_layer",
    "heatmap",
    "reliability",
    "scatter",
    "shift_by_layer",
    "spectra",
]
