"""One module a figure, each giving an Altair chart from the tidy frames."""

from predbn.report.figures.boxes import Places, box_chart, boxes
from predbn.report.figures.curves import curves
from predbn.report.figures.densities import densities
from predbn.report.figures.heatmap import heatmap
from predbn.report.figures.reliability import reliability
from predbn.report.figures.scatter import scatter

__all__ = ["Places", "box_chart", "boxes", "curves", "densities", "heatmap", "reliability", "scatter"]
