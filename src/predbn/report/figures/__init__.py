"""One module a figure, each giving an Altair chart from the tidy frames or from a diagnosis."""

from .boxes import Places, box_chart, boxes
from .channels import channels
from .confidence import confidence
from .confidence_bins import confidence_bins
from .curves import curves
from .densities import densities
from .depth import depth
from .heatmap import heatmap
from .reliability import reliability
from .scatter import scatter
from .spectra import spectra

__all__ = [
    "Places",
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
