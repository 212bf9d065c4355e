"""One module a figure, each giving an Altair chart from the tidy frames or from a diagnosis."""

from predbn.report.figures.boxes import boxes
from predbn.report.figures.channels import channels
from predbn.report.figures.confidence import confidence
from predbn.report.figures.depth import depth
from predbn.report.figures.heatmap import heatmap
from predbn.report.figures.reliability import reliability
from predbn.report.figures.spectra import spectra

__all__ = ["boxes", "channels", "confidence", "depth", "heatmap", "reliability", "spectra"]
