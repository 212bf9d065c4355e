"""One module a figure, each giving an Altair chart from the tidy frames or from a diagnosis."""

from predbn.report.figures.boxes import Places, box_chart, boxes
from predbn.report.figures.channels import channels
from predbn.report.figures.confidence import confidence
from predbn.report.figures.confidence_bins import confidence_bins
from predbn.report.figures.curves import curves
from predbn.report.figures.densities import densities
from predbn.report.figures.depth import depth
from predbn.report.figures.heatmap import heatmap
from predbn.report.figures.reliability import reliability
from predbn.report.figures.scatter import scatter
from predbn.report.figures.spectra import spectra

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
