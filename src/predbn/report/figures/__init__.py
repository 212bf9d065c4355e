"""One module a figure, each giving an Altair chart from the tidy frames."""

from predbn.report.figures.boxes import boxes
from predbn.report.figures.heatmap import heatmap
from predbn.report.figures.reliability import reliability

__all__ = ["boxes", "heatmap", "reliability"]
