"""Figures as files."""

from __future__ import annotations

import pytest

from predbn.report import ReportError, save_variants
from predbn.report.results_page import results_figures


def test_every_variant_is_saved_by_name(frame, rel, tmp_path):
    few = frame[(frame["method"] == "vanilla") & (frame["metric"] == "ece")]
    figures = results_figures(few, rel[rel["method"] == "vanilla"])
    saved = save_variants(tmp_path, figures, suffix=".svg")
    assert [path.name for path in saved] == ["ece.svg", "gain-ECE-batch-over-train.svg", "reliability.svg"]
    with pytest.raises(ReportError, match="end the name with"):
        save_variants(tmp_path, figures, suffix=".bmp")
