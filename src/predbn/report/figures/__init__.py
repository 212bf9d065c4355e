"""Charts: each function returns an Altair chart of the tidy frames or of a diagnosis; one module per family."""

from .boxes import SEVERITY_AXIS, XAxis, box_chart, boxes
from .curves import SEVERITY_STYLES, curves, scatter
from .diagnosis import confidence, depth, spectra
from .distributions import channels, densities
from .heatmap import heatmap
from .reliability import confidence_bins, reliability

__all__ = [
    "SEVERITY_AXIS",
    "SEVERITY_STYLES",
    "XAxis",
    "box_chart",
    "boxes",
    "channels",
    "confidence",
    "confidence_bins",
    "curves",
    "densities",
    "depth",
    "heatmap",
    "reliability",
    "scatter",
    "spectra",
]
